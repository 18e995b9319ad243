#include "tests/integration/cli/fake_daemon.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace headroom::testing {

FakeDaemon::FakeDaemon(const std::filesystem::path& dir, int tokens)
    : dir_(dir), work_(io_.get_executor()) {
  const bool fresh = !std::filesystem::exists(dir_ / "lane");
  auto fifo = sys::Fifo::Create((dir_ / "lane" / "fifo").string(), geteuid());
  if (!fifo.ok()) throw std::runtime_error(std::string(fifo.status().message()));
  fifo_ = std::make_unique<sys::Fifo>(*std::move(fifo));
  if (fresh && !fifo_->Put(tokens).ok()) throw std::runtime_error("no tokens");
  daemon::ControlOptions options;
  options.path = (dir_ / "control.sock").string();
  options.owner = geteuid();
  options.mode = 0666;
  server_ = std::make_unique<daemon::ControlServer>(io_, *this, options);
  if (const absl::Status started = server_->Start(); !started.ok())
    throw std::runtime_error(std::string(started.message()));
  thread_ = std::thread([this] { io_.run(); });
}

FakeDaemon::~FakeDaemon() {
  boost::asio::post(io_, [this] { server_->Stop(); });
  work_.reset();
  thread_.join();
}

Asked FakeDaemon::asked() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return asked_;
}

void FakeDaemon::Answer(const std::function<void(Answers&)>& change) {
  const std::lock_guard<std::mutex> lock(mutex_);
  change(answers_);
}

int FakeDaemon::Idle() const {
  const auto idle = fifo_->Idle();
  return idle.ok() ? static_cast<int>(*idle) : -1;
}

absl::StatusOr<v1::Status> FakeDaemon::OnStatus(const daemon::Peer&) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return answers_.status;
}

absl::StatusOr<v1::Explanation> FakeDaemon::OnExplain(const daemon::Peer&,
                                                      const v1::ExplainRequest& request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  asked_.explained.push_back(request);
  return answers_.explanation;
}

absl::StatusOr<v1::Attached> FakeDaemon::OnAttach(const daemon::Peer&,
                                                  const v1::AttachRequest& request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  asked_.attached.push_back(request);
  if (answers_.on_attach) return answers_.on_attach(request);
  v1::Attached attached;
  attached.set_lane_dir(lane_dir());
  attached.set_cores(request.has_jobs() ? request.jobs() : 4);
  attached.set_daemon_version("fake");
  return attached;
}

absl::StatusOr<v1::LaneSummary> FakeDaemon::OnDetach(const daemon::Peer&,
                                                     const v1::DetachRequest& request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  asked_.detached.push_back(request.exit_code());
  return answers_.summary;
}

absl::StatusOr<v1::Environment> FakeDaemon::OnEnv(const daemon::Peer&) {
  v1::Environment environment;
  environment.set_lane_dir(lane_dir());
  environment.set_cores(4);
  return environment;
}

absl::Status FakeDaemon::OnReload(const daemon::Peer&) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++asked_.reloaded;
  return absl::OkStatus();
}

absl::Status FakeDaemon::OnSet(const daemon::Peer&, const v1::SetRequest& request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  asked_.set.push_back(request);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FakeDaemon::OnTrace(const daemon::Peer&) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return answers_.trace_files;
}

void FakeDaemon::OnDropped(const daemon::Peer&) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++asked_.dropped;
}

RudeServer::RudeServer(const std::filesystem::path& dir, std::string words)
    : words_(std::move(words)) {
  listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = (dir / "control.sock").string();
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener_, 8) != 0)
    throw std::runtime_error(path + ": " + std::strerror(errno));
  thread_ = std::thread([this] {
    while (true) {
      const int peer = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (peer < 0) return;
      peers_.push_back(peer);
      if (send(peer, words_.data(), words_.size(), MSG_NOSIGNAL) < 0) continue;
    }
  });
}

RudeServer::~RudeServer() {
  shutdown(listener_, SHUT_RDWR);
  thread_.join();
  close(listener_);
  for (const int peer : peers_) close(peer);
}

}  // namespace headroom::testing
