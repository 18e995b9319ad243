// Brings the history to the policy and what was learned back to the file, off the loop's thread:
// another daemon's lock or a slow disk must not hold up a decision.
//
// A store takes what the profile has more than at the last one; what the file has of these classes
// then (older builds count less by now, and other daemons have added to it) is fed to the policy.
// Whatever fails is said once and tried again with the next store; a build goes on without.
//
// Threading: the io_context's thread; one other at a time is its own.
#ifndef HEADROOM_SERVER_DAEMON_HISTORY_WRITER_H_
#define HEADROOM_SERVER_DAEMON_HISTORY_WRITER_H_

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "server/history/history.h"
#include "server/policy/event.h"
#include "server/policy/profile.h"

namespace headroom::daemon {

class HistoryWriter {
 public:
  // An empty path: there is no history. `profile` is the policy's, `recall` feeds it.
  HistoryWriter(boost::asio::io_context& io, std::string path,
                std::function<const policy::Profile&()> profile,
                std::function<void(policy::Recalled)> recall);
  ~HistoryWriter();
  HistoryWriter(const HistoryWriter&) = delete;
  HistoryWriter& operator=(const HistoryWriter&) = delete;

  // At the start: waits for the file.
  void Load();
  // A build is over.
  void Store();
  // The last store: waits for it.
  void Finish();

 private:
  struct Outcome {
    absl::Status status;
    std::vector<history::Row> rows;
    std::string note;
  };
  // On any thread.
  static Outcome Write(const std::string& path, const std::vector<history::Row>& more);

  void Done();
  // What the store that has ended means for `stored_`; classes to be fed to the policy.
  policy::Recalled Book(const Outcome& outcome);
  void Complain(const std::string& text);

  boost::asio::io_context& io_;
  std::string path_;
  std::function<const policy::Profile&()> profile_;
  std::function<void(policy::Recalled)> recall_;
  std::vector<policy::Stats> stored_;  // the profile's classes as the file had them last
  std::vector<policy::Stats> sent_;    // those of the store that is under way
  std::shared_ptr<Outcome> outcome_;   // of it: the thread's until it has ended
  std::thread writing_;
  bool busy_ = false;
  bool again_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::string complained_;
};

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_HISTORY_WRITER_H_
