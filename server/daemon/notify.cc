#include "server/daemon/notify.h"

#include <absl/strings/str_cat.h>
#include <systemd/sd-daemon.h>
#include <time.h>

#include <cstdint>
#include <cstdlib>
#include <system_error>
#include <utility>

namespace headroom::daemon {
namespace {

// A newline would begin another variable.
std::string OneLine(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return line;
}

uint64_t MonotonicMicros() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

}  // namespace

Notifier Notifier::FromEnvironment() {
  Notifier notifier;
  const char* socket = std::getenv("NOTIFY_SOCKET");
  if (socket != nullptr) notifier.socket_ = socket;
  uint64_t micros = 0;
  // Compares WATCHDOG_PID with this process and removes both variables.
  if (sd_watchdog_enabled(/*unset_environment=*/1, &micros) > 0 && micros > 1)
    notifier.watchdog_period_ = std::chrono::microseconds(micros / 2);
  unsetenv("NOTIFY_SOCKET");
  return notifier;
}

void Notifier::Ready(std::string_view status) {
  Send(absl::StrCat("READY=1\nSTATUS=", OneLine(status)));
}

void Notifier::Status(std::string_view status) {
  Send(absl::StrCat("STATUS=", OneLine(status)));
}

void Notifier::Reloading() {
  // The time: Type=notify-reload (systemd 253) wants it, older ones pass over it.
  Send(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", MonotonicMicros(), "\nSTATUS=reloading"));
}

void Notifier::Stopping() {
  Send("STOPPING=1\nSTATUS=stopping");
}

void Notifier::Alive() {
  Send("WATCHDOG=1");
}

void Notifier::Send(const std::string& message) {
  if (!enabled()) return;
  // sd_notify reads the address from the environment alone; it is there just for the call, so that
  // no child gets it.
  setenv("NOTIFY_SOCKET", socket_.c_str(), 1);
  const int sent = sd_notify(/*unset_environment=*/1, message.c_str());
  if (sent < 0) {
    last_error_ = absl::StrCat("cannot tell systemd through ", socket_, ": ",
                               std::system_category().message(-sent));
  } else {
    last_error_.clear();
  }
}

Watchdog::Watchdog(boost::asio::io_context& io, Notifier& notifier, std::function<bool()> healthy)
    : notifier_(notifier), healthy_(std::move(healthy)), timer_(io) {}

void Watchdog::Start() {
  if (!notifier_.watchdog_period()) return;
  // At once: systemd counts from the start of the program.
  if (healthy_()) notifier_.Alive();
  Arm();
}

void Watchdog::Stop() {
  timer_.cancel();
}

void Watchdog::Arm() {
  timer_.expires_after(*notifier_.watchdog_period());
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    if (healthy_()) notifier_.Alive();
    Arm();
  });
}

}  // namespace headroom::daemon
