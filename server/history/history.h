// The history: what builds have taught of the sizes of their processes, in one SQLite file.
//
// Several daemons may use one file at once: each adds what it has seen since it last did so, in one
// immediate transaction; nobody writes back what others know. What older builds showed counts less:
// see Merge. The file is bounded: classes that no build has used for longest go first.
//
// A file that is damaged, or that a newer version wrote, is set aside under another name, never
// overwritten: Open says so once in `note`, and goes on with a new one. Everything else that can go
// wrong (no folder, read-only, full, locked for too long) is an error of the call: a build goes on
// without.
//
// The file is the owner's alone (0600); it names sources by their path relative to the build
// folder, see policy/predict.cc, NameOfSource. No arguments are in it.
//
// Threading: one thread at a time. Calls block for disk and locks, up to Options::wait.
// Source: sqlite.org/wal.html, sqlite.org/lang_transaction.html.
#ifndef HEADROOM_SERVER_HISTORY_HISTORY_H_
#define HEADROOM_SERVER_HISTORY_HISTORY_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/policy/profile.h"

struct sqlite3;

namespace headroom::history {

// PRAGMA user_version of files that this version reads and writes.
inline constexpr int kSchema = 1;

// As many as the policy takes in at once, and some: most recently used first.
inline constexpr size_t kMostLoaded = 2048;

struct Options {
  std::string path;
  // Classes that are kept. At some 600 bytes each this is 12 MB: a few hundred projects.
  size_t most_classes = 20'000;
  // For another's lock.
  std::chrono::milliseconds wait{2000};
  bool read_only = false;  // NotFound where there is no file; nothing is set aside
};

// A class as it is kept. `stats.parent` is not used; `above` is the parent's name.
struct Row {
  policy::Stats stats;
  std::string above;
  double build_count = 0;  // processes of it in a whole build, see Merge
  int64_t builds = 0;
  int64_t used_at = 0;  // seconds since 1970
};

// What the sums become when a later build's are added. Of a class that the build saw as a whole,
// all that was known before counts half from then on: a source that has grown is believed after one
// build, and yet one odd build does not undo what ten have shown. A build that ran a part of a
// class (one file of a hundred) takes away that part of the half, or a day of small changes would
// leave nothing of the whole. A whole build is the largest one seen, forgotten by a tenth each.
Row Merge(const Row& before, const Row& more);

class History {
 public:
  // Makes the file, and its folder (0700), where they are missing.
  static absl::StatusOr<std::unique_ptr<History>> Open(Options options);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // What Open had to set aside, for the user; mostly empty.
  const std::string& note() const { return note_; }

  // The most recently used classes, those above before those below, as policy::Recalled has them.
  absl::StatusOr<std::vector<policy::Stats>> Load(size_t most = kMostLoaded);

  // All of them, by name.
  absl::StatusOr<std::vector<Row>> List();

  // Adds `more` (a build's own sums), and gives what the file has of these classes then. Rows that
  // are not sane are passed over. Parents must come before children or be in the file.
  absl::StatusOr<std::vector<Row>> Add(const std::vector<Row>& more, int64_t now);

  // Removes the class and all below it; how many went.
  absl::StatusOr<int64_t> Forget(const std::string& name);
  absl::StatusOr<int64_t> ForgetAll();

 private:
  History(sqlite3* db, Options options) : db_(db), options_(std::move(options)) {}

  static absl::StatusOr<std::unique_ptr<History>> TryOpen(const Options& options);
  absl::Status Execute(const char* sql);
  absl::Status Failed(const char* what);

  sqlite3* db_;
  Options options_;
  std::string note_;
};

// `rows` with parents before children and Stats::parent set; rows whose parent is missing are left
// out, and so is a circle.
std::vector<policy::Stats> InOrder(const std::vector<Row>& rows);

// What a profile has more than `before` (an earlier state of the same profile: by position), with
// all classes above.
std::vector<Row> Difference(const std::vector<policy::Stats>& before,
                            const std::vector<policy::Stats>& after);

// `stats` plus (`after` less `before`): what was learned since goes on top of what is recalled.
policy::Stats Plus(policy::Stats stats, const policy::Stats& before, const policy::Stats& after);

}  // namespace headroom::history

#endif  // HEADROOM_SERVER_HISTORY_HISTORY_H_
