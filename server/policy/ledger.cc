#include "server/policy/ledger.h"

#include <algorithm>

namespace headroom::policy {
namespace {

void ForgetLeak(LaneState& lane) {
  lane.leak_least = 0;
  lane.leak_since = Time{};
}

// Follows the smallest number of unexplained tokens; true when it has stood for `window`.
bool LeakStands(LaneState& lane, int unexplained, Duration window, Time now) {
  if (unexplained <= 0) {
    ForgetLeak(lane);
    return false;
  }
  if (lane.leak_least == 0) {
    lane.leak_least = unexplained;
    lane.leak_since = now;
  }
  lane.leak_least = std::min(lane.leak_least, unexplained);
  return now - lane.leak_since >= window;
}

}  // namespace

void Book(LaneState& lane, const TokensMoved& moved) {
  lane.minted = std::max(0, lane.minted + moved.minted - moved.collected);
  if (moved.minted > 0 || moved.collected == 0) {
    // The answer to the oldest Mint, or to several at once. What could not be written is asked for
    // again by the next Settle().
    int left = moved.minted;
    do {
      if (lane.asks.empty()) break;
      left -= lane.asks.front();
      lane.asked -= lane.asks.front();
      lane.asks.erase(lane.asks.begin());
    } while (left > 0);
  }
  lane.debt = std::clamp(lane.debt - moved.collected, 0, lane.minted + lane.asked);
  lane.idle = std::clamp(moved.idle, 0, lane.minted);
}

std::optional<LedgerNews> Observe(LaneState& lane, const LaneSample& sample, Time now) {
  std::optional<LedgerNews> news;
  const int idle = std::max(0, sample.idle);
  if (idle > lane.minted + lane.asked) {
    // They exist, whoever wrote them: into the books, and Settle() collects them.
    news = LedgerNews{ReasonCode::kSurplus, idle - lane.minted};
    lane.minted = idle;
  }
  lane.idle = std::min(idle, lane.minted);
  lane.clients = std::max(0, sample.clients);
  lane.had_client = lane.had_client || lane.clients > 0;
  if (sample.explained) lane.explained = sample.explained;
  if (sample.opened) lane.opened = sample.opened;

  const int out = Out(lane);
  if (out <= 0) {
    ForgetLeak(lane);
    return news;
  }
  if (sample.opened && !*sample.opened) {
    // Nobody can write these back any more.
    news = LedgerNews{ReasonCode::kClientsGone, out};
    lane.minted = lane.idle;
    lane.debt = std::min(lane.debt, lane.minted + lane.asked);
    ForgetLeak(lane);
    return news;
  }
  const bool gone = lane.clients == 0 && lane.had_client && !sample.opened.value_or(false);
  std::optional<int> unexplained;
  if (sample.explained) unexplained = out - *sample.explained;
  if (gone) unexplained = out;
  if (!unexplained) return news;
  const bool quick = gone && lane.kind == LaneKind::kOwn;
  if (LeakStands(lane, *unexplained, quick ? kClientsGoneWindow : kLeakWindow, now)) {
    news = LedgerNews{gone ? ReasonCode::kClientsGone : ReasonCode::kLeak, lane.leak_least};
    lane.minted -= lane.leak_least;
    lane.debt = std::min(lane.debt, lane.minted + lane.asked);
    ForgetLeak(lane);
  }
  return news;
}

void Settle(LaneState& lane, const Reason& reason, std::vector<Action>& actions) {
  const int target = std::max(0, lane.target);
  const int have = lane.minted + lane.asked;
  if (have < target) {
    if (lane.debt > 0) {
      lane.debt = 0;
      actions.push_back(Collect{lane.id, 0, reason});
    }
    const int count = target - have;
    lane.asked += count;
    lane.asks.push_back(count);
    actions.push_back(Mint{lane.id, count, reason});
    return;
  }
  const int debt = have - target;
  if (debt != lane.debt) {
    lane.debt = debt;
    actions.push_back(Collect{lane.id, debt, reason});
  }
}

}  // namespace headroom::policy
