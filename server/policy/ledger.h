// The ledger of a lane's tokens: how many exist, lie in the fifo, are out with clients, are owed.
//
// A fifo says only how many bytes lie in it. All else is bookkeeping: minted = idle + out. The
// books go wrong in two ways, both common in the field: a client dies with tokens (they are lost,
// "leak"), or somebody writes bytes of its own (they are too many, "surplus"). The ledger finds
// both and corrects `minted`; Settle() then restores the number of tokens that should exist.
//
// Order of observation matters: `idle` of a LaneSample is to be read before its clients and openers
// are, so that a token that is taken in between is not mistaken for a lost one.
#ifndef HEADROOM_SERVER_POLICY_LEDGER_H_
#define HEADROOM_SERVER_POLICY_LEDGER_H_

#include <optional>
#include <vector>

#include "server/policy/action.h"
#include "server/policy/event.h"
#include "server/policy/state.h"

namespace headroom::policy {

// Tokens that are out and that no client's child explains are taken for lost after this time. A
// job that ends and one that starts are seen up to one slow sample (1 s) late each; a third second
// is margin. A client killed with -9 must be made good within 5 s, of which this leaves 2.
inline constexpr Duration kLeakWindow = std::chrono::seconds(3);

// The same where the lane's last client is gone but nobody looked who has the fifo open: long
// enough for one fast sample that sees a client that starts right then; own lanes must be made good
// within 1 s.
inline constexpr Duration kClientsGoneWindow = std::chrono::milliseconds(300);

// Tokens held by clients.
inline int Out(const LaneState& lane) {
  return lane.minted - lane.idle;
}

// A correction of the books.
struct LedgerNews {
  ReasonCode code{};  // kLeak, kClientsGone or kSurplus
  int tokens = 0;     // lost, or too many
};

// Books what the daemon moved.
void Book(LaneState& lane, const TokensMoved& moved);

// Books what the fifo and the clients look like.
std::optional<LedgerNews> Observe(LaneState& lane, const LaneSample& sample, Time now);

// Emits what brings the tokens that exist to `lane.target`: a Mint for what is missing, or a
// Collect for what is too many. Nothing if that was already asked for.
void Settle(LaneState& lane, const Reason& reason, std::vector<Action>& actions);

}  // namespace headroom::policy

#endif  // HEADROOM_SERVER_POLICY_LEDGER_H_
