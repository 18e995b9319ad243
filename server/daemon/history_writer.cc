#include "server/daemon/history_writer.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <exception>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace headroom::daemon {
namespace {

int64_t NowSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string WhyOf(const absl::Status& status) {
  return std::string(status.message());
}

}  // namespace

HistoryWriter::HistoryWriter(boost::asio::io_context& io, std::string path,
                             std::function<const policy::Profile&()> profile,
                             std::function<void(policy::Recalled)> recall)
    : io_(io), path_(std::move(path)), profile_(std::move(profile)), recall_(std::move(recall)) {}

HistoryWriter::~HistoryWriter() {
  *alive_ = false;
  if (writing_.joinable()) writing_.join();
}

void HistoryWriter::Complain(const std::string& text) {
  if (text == complained_) return;
  complained_ = text;
  spdlog::warn("{}; builds go on, without what earlier ones have taught", text);
}

void HistoryWriter::Load() {
  if (path_.empty()) return;
  auto file = history::History::Open({.path = path_});
  if (!file.ok()) return Complain(WhyOf(file.status()));
  if (!(*file)->note().empty()) spdlog::warn("{}", (*file)->note());
  absl::StatusOr<std::vector<policy::Stats>> known = (*file)->Load();
  if (!known.ok()) return Complain(WhyOf(known.status()));
  spdlog::debug("history {}: {} classes", path_, known->size());
  if (known->empty()) return;
  recall_(policy::Recalled{*std::move(known)});
  stored_ = profile_().classes;
}

HistoryWriter::Outcome HistoryWriter::Write(const std::string& path,
                                            const std::vector<history::Row>& more) {
  Outcome outcome;
  auto file = history::History::Open({.path = path});
  if (!file.ok()) {
    outcome.status = file.status();
    return outcome;
  }
  outcome.note = (*file)->note();
  auto rows = (*file)->Add(more, NowSeconds());
  outcome.status = rows.status();
  if (rows.ok()) outcome.rows = *std::move(rows);
  return outcome;
}

void HistoryWriter::Store() {
  if (path_.empty()) return;
  if (busy_) {
    again_ = true;
    return;
  }
  std::vector<history::Row> more = history::Difference(stored_, profile_().classes);
  if (more.empty()) return;
  sent_ = profile_().classes;
  busy_ = true;
  // Signals are for the loop's thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  outcome_ = std::make_shared<Outcome>();
  try {
    writing_ = std::thread([this, &io = io_, path = path_, more = std::move(more), alive = alive_,
                            outcome = outcome_]() {
      *outcome = Write(path, more);
      boost::asio::post(io, [this, alive, outcome]() {
        if (*alive && busy_ && outcome == outcome_) Done();
      });
    });
  } catch (const std::exception& error) {
    // No thread to be had: with the next build, or at the end.
    busy_ = false;
    Complain(absl::StrCat("history ", path_, ": ", error.what()));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

policy::Recalled HistoryWriter::Book(const Outcome& outcome) {
  policy::Recalled recalled;
  if (!outcome.note.empty()) spdlog::warn("{}", outcome.note);
  if (!outcome.status.ok()) {
    Complain(WhyOf(outcome.status));
    return recalled;
  }
  complained_.clear();
  const policy::Profile& profile = profile_();
  // By position in the profile; parents were written before children.
  std::map<int32_t, int32_t> place;
  for (const history::Row& row : outcome.rows) {
    const auto at = profile.index.find(row.stats.name);
    if (at == profile.index.end() || at->second >= sent_.size()) continue;
    const policy::Stats& sent = sent_[at->second];
    // Others' sums may be in it; what was learned here meanwhile goes on top.
    policy::Stats known = history::Plus(row.stats, sent, profile.classes[at->second]);
    const auto above = place.find(sent.parent);
    known.parent = above == place.end() ? -1 : above->second;
    place.emplace(static_cast<int32_t>(at->second), static_cast<int32_t>(recalled.classes.size()));
    recalled.classes.push_back(std::move(known));
  }
  return recalled;
}

void HistoryWriter::Done() {
  if (writing_.joinable()) writing_.join();
  busy_ = false;
  policy::Recalled recalled = Book(*outcome_);
  if (outcome_->status.ok()) {
    const std::vector<policy::Stats> before = profile_().classes;
    if (!recalled.classes.empty()) recall_(std::move(recalled));
    // Known to the file: all but what was learned since the store began.
    const std::vector<policy::Stats>& now = profile_().classes;
    stored_ = sent_;
    for (size_t i = 0; i < sent_.size(); ++i) {
      if (now[i] == before[i]) continue;
      stored_[i] = history::Plus(now[i], before[i], sent_[i]);
    }
  }
  sent_.clear();
  outcome_.reset();
  if (std::exchange(again_, false)) Store();
}

void HistoryWriter::Finish() {
  if (path_.empty()) return;
  if (busy_) {
    // The loop runs no longer: its outcome is taken here. Nobody plans with it any more.
    if (writing_.joinable()) writing_.join();
    busy_ = false;
    Book(*outcome_);
    if (outcome_->status.ok()) stored_ = sent_;
  }
  const std::vector<history::Row> more = history::Difference(stored_, profile_().classes);
  if (more.empty()) return;
  const Outcome outcome = Write(path_, more);
  if (!outcome.note.empty()) spdlog::warn("{}", outcome.note);
  if (!outcome.status.ok()) Complain(WhyOf(outcome.status));
  stored_ = profile_().classes;
}

}  // namespace headroom::daemon
