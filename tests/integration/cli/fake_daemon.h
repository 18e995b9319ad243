// A daemon for the client's tests: the real control server, with answers that the test chooses, in
// a thread of the test.
#ifndef HEADROOM_TESTS_INTEGRATION_CLI_FAKE_DAEMON_H_
#define HEADROOM_TESTS_INTEGRATION_CLI_FAKE_DAEMON_H_

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "headroom/v1/control.pb.h"
#include "server/daemon/control_server.h"
#include "server/sys/fifo.h"

namespace headroom::testing {

// What was asked of it, in words of the test's own.
struct Asked {
  std::vector<v1::AttachRequest> attached;
  std::vector<int> detached;  // exit codes
  int dropped = 0;
  std::vector<v1::SetRequest> set;
  std::vector<v1::ExplainRequest> explained;
  int reloaded = 0;
};

// What it answers.
struct Answers {
  std::function<absl::StatusOr<v1::Attached>(const v1::AttachRequest&)> on_attach;
  v1::LaneSummary summary;
  v1::Status status;
  v1::Explanation explanation;
  std::vector<std::string> trace_files;
};

class FakeDaemon : public daemon::ControlHandler {
 public:
  // Listens in `dir`; every lane is the one in `dir`/lane, with `tokens` tokens put in when it is
  // made first.
  explicit FakeDaemon(const std::filesystem::path& dir, int tokens = 3);
  ~FakeDaemon() override;

  Asked asked() const;
  std::string lane_dir() const { return (dir_ / "lane").string(); }
  int Idle() const;

  // Its thread may be answering: what is asked for next is answered with the change.
  void Answer(const std::function<void(Answers&)>& change);

 private:
  absl::StatusOr<v1::Status> OnStatus(const daemon::Peer& peer) override;
  absl::StatusOr<v1::Explanation> OnExplain(const daemon::Peer& peer,
                                            const v1::ExplainRequest& request) override;
  absl::StatusOr<v1::Attached> OnAttach(const daemon::Peer& peer,
                                        const v1::AttachRequest& request) override;
  absl::StatusOr<v1::LaneSummary> OnDetach(const daemon::Peer& peer,
                                           const v1::DetachRequest& request) override;
  absl::StatusOr<v1::Environment> OnEnv(const daemon::Peer& peer) override;
  absl::Status OnReload(const daemon::Peer& peer) override;
  absl::Status OnSet(const daemon::Peer& peer, const v1::SetRequest& request) override;
  absl::StatusOr<std::vector<std::string>> OnTrace(const daemon::Peer& peer) override;
  void OnDropped(const daemon::Peer& peer) override;

  std::filesystem::path dir_;
  std::unique_ptr<sys::Fifo> fifo_;
  mutable std::mutex mutex_;
  Asked asked_;
  Answers answers_;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::unique_ptr<daemon::ControlServer> server_;
  std::thread thread_;
};

// Something else at a socket: says `words` to whoever connects, and otherwise nothing.
class RudeServer {
 public:
  RudeServer(const std::filesystem::path& dir, std::string words);
  ~RudeServer();

 private:
  int listener_ = -1;
  std::string words_;
  std::vector<int> peers_;
  std::thread thread_;
};

}  // namespace headroom::testing

#endif  // HEADROOM_TESTS_INTEGRATION_CLI_FAKE_DAEMON_H_
