#include "server/history/history.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/policy/predict.h"
#include "server/sys/file.h"
#include "server/sys/lock_file.h"

namespace headroom::history {
namespace {

using policy::Stats;

constexpr char kCreate[] = R"(
CREATE TABLE IF NOT EXISTS class (
  name TEXT PRIMARY KEY NOT NULL,
  above TEXT NOT NULL,
  key TEXT NOT NULL,
  job INTEGER NOT NULL,
  one_source INTEGER NOT NULL,
  fan_out INTEGER NOT NULL,
  count REAL NOT NULL,
  log_peak REAL NOT NULL,
  log_peak2 REAL NOT NULL,
  cpu_count REAL NOT NULL,
  log_cpu REAL NOT NULL,
  log_cpu2 REAL NOT NULL,
  shape_count REAL NOT NULL,
  level BLOB NOT NULL,
  rise BLOB NOT NULL,
  largest INTEGER NOT NULL,
  build_count REAL NOT NULL,
  builds INTEGER NOT NULL,
  used_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS class_used_at ON class (used_at);
CREATE INDEX IF NOT EXISTS class_above ON class (above);
)";

constexpr char kColumns[] =
    "name, above, key, job, one_source, fan_out, count, log_peak, log_peak2, cpu_count, log_cpu, "
    "log_cpu2, shape_count, level, rise, largest, build_count, builds, used_at";

// Damage that the file itself shows; a broken disk (SQLITE_IOERR) is none that a rename would mend.
bool IsDamage(int code) {
  return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB ||
         (code & 0xff) == SQLITE_FORMAT;
}

// Statuses carry no SQLite codes: damage is DataLoss, a newer schema FailedPrecondition.
absl::Status StatusOf(int code, const std::string& text) {
  if (IsDamage(code)) return absl::DataLossError(text);
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(text);
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(text);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return absl::PermissionDeniedError(text);
    default:
      return absl::UnknownError(text);
  }
}

class Statement {
 public:
  Statement(sqlite3* db, const std::string& sql) {
    code_ = sqlite3_prepare_v2(db, sql.c_str(), static_cast<int>(sql.size()), &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  bool ok() const { return code_ == SQLITE_OK || code_ == SQLITE_ROW || code_ == SQLITE_DONE; }

  void Bind(const std::string& text) {
    // By length: a name may have any bytes.
    Note(sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()),
                           SQLITE_STATIC));
  }
  void Bind(double value) { Note(sqlite3_bind_double(statement_, ++bound_, value)); }
  void Bind(int64_t value) { Note(sqlite3_bind_int64(statement_, ++bound_, value)); }
  void Bind(const std::array<double, policy::kShapePoints>& points) {
    // As this machine has doubles; export is the way to another one.
    Note(sqlite3_bind_blob(statement_, ++bound_, points.data(), sizeof(points), SQLITE_STATIC));
  }
  void Reset() {
    sqlite3_reset(statement_);
    bound_ = 0;
    code_ = SQLITE_OK;
  }

  // Whether there is a row.
  bool Next() {
    if (!ok()) return false;
    code_ = sqlite3_step(statement_);
    return code_ == SQLITE_ROW;
  }
  std::string Text(int column) {
    const auto* text = static_cast<const char*>(sqlite3_column_blob(statement_, column));
    const int size = sqlite3_column_bytes(statement_, column);
    return text == nullptr ? "" : std::string(text, static_cast<size_t>(size));
  }
  double Double(int column) { return sqlite3_column_double(statement_, column); }
  int64_t Integer(int column) { return sqlite3_column_int64(statement_, column); }
  bool Points(int column, std::array<double, policy::kShapePoints>& points) {
    const void* bytes = sqlite3_column_blob(statement_, column);
    if (bytes == nullptr || sqlite3_column_bytes(statement_, column) != sizeof(points)) {
      return false;
    }
    std::memcpy(points.data(), bytes, sizeof(points));
    return true;
  }

 private:
  void Note(int code) {
    if (code != SQLITE_OK) code_ = code;
  }

  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
  int bound_ = 0;
};

// Unset: a row that nothing of ours wrote.
std::optional<Row> ReadRow(Statement& from) {
  Row row;
  Stats& stats = row.stats;
  stats.name = from.Text(0);
  row.above = from.Text(1);
  stats.key = from.Text(2);
  stats.job = from.Integer(3) != 0;
  stats.one_source = from.Integer(4) != 0;
  stats.fan_out = static_cast<int>(std::clamp<int64_t>(from.Integer(5), 0, 1000));
  stats.count = from.Double(6);
  stats.log_peak = from.Double(7);
  stats.log_peak2 = from.Double(8);
  stats.cpu_count = from.Double(9);
  stats.log_cpu = from.Double(10);
  stats.log_cpu2 = from.Double(11);
  stats.shape_count = from.Double(12);
  if (!from.Points(13, stats.level) || !from.Points(14, stats.rise)) return std::nullopt;
  stats.largest.count = from.Integer(15);
  row.build_count = from.Double(16);
  row.builds = from.Integer(17);
  row.used_at = from.Integer(18);
  if (!policy::IsSane(stats) || !(row.build_count >= 0) || row.builds < 0) return std::nullopt;
  return row;
}

// Other users may not read it, and must not have been able to put it there. NotFound: there is
// none.
absl::Status CheckFile(const std::string& path, bool create) {
  const sys::UniqueFd file(
      open(path.c_str(), (create ? O_RDWR | O_CREAT : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY,
           0600));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0) {
    const int error = errno;
    const std::string text =
        absl::StrCat("history ", path, ": ", std::system_category().message(error));
    if (error == ENOENT) return absl::NotFoundError(text);
    return absl::PermissionDeniedError(text);
  }
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat(
        "history ", path, ": is no plain file of this user (", geteuid(), "); move it away"));
  }
  if ((status.st_mode & 077) != 0 && fchmod(file.get(), 0600) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("history ", path, ": others may read it; chmod 600 it"));
  }
  return absl::OkStatus();
}

// WAL's index is shared memory, which hosts that share a home over the network don't share.
bool IsNetwork(const std::string& path) {
  struct statfs status {};
  if (statfs(path.c_str(), &status) != 0) return true;
  // statfs(2): NFS, SMB, SMB2, CIFS, CEPH, AFS, FUSE (sshfs and such), 9P, Lustre, GPFS.
  constexpr uint64_t kKinds[] = {0x6969,     0x517b,     0xfe534d42, 0xff534d42, 0x00c36400,
                                 0x5346414f, 0x65735546, 0x01021997, 0x0bd00bd0, 0x47504653};
  const uint64_t kind = static_cast<uint32_t>(status.f_type);
  return std::find(std::begin(kKinds), std::end(kKinds), kind) != std::end(kKinds);
}

// The name that the file gets is free.
std::string SetAside(const std::string& path, const std::string& why) {
  std::string to;
  for (int i = 0;; ++i) {
    to = absl::StrCat(path, ".", why, i == 0 ? "" : absl::StrCat("-", i));
    // Without replacing: link(2) fails where there is a file.
    if (link(path.c_str(), to.c_str()) == 0) break;
    if (errno != EEXIST || i > 1000) {
      // A file system without hard links.
      to = absl::StrCat(path, ".", why, "-", std::time(nullptr), "-", getpid());
      if (rename(path.c_str(), to.c_str()) != 0) return "";
      break;
    }
  }
  unlink(path.c_str());
  // What was written last lies beside it, and belongs to it.
  for (const char* part : {"-wal", "-shm", "-journal"}) {
    rename((path + part).c_str(), (to + part).c_str());
  }
  return to;
}

}  // namespace

Row Merge(const Row& before, const Row& more) {
  // See the header.
  constexpr double kOldBuilds = 0.5;
  constexpr double kForgetsSize = 0.9;
  Row row = before;
  row.used_at = std::max(before.used_at, more.used_at);
  const double n = more.stats.count;
  if (n <= 0) return row;
  row.build_count = std::max(n, before.build_count * (n < before.build_count ? kForgetsSize : 1));
  const double keep = std::pow(kOldBuilds, std::min(1.0, n / row.build_count));
  Stats& stats = row.stats;
  const Stats& add = more.stats;
  const auto sum = [&](double& to, double with) { to = to * keep + with; };
  sum(stats.count, add.count);
  sum(stats.log_peak, add.log_peak);
  sum(stats.log_peak2, add.log_peak2);
  sum(stats.cpu_count, add.cpu_count);
  sum(stats.log_cpu, add.log_cpu);
  sum(stats.log_cpu2, add.log_cpu2);
  sum(stats.shape_count, add.shape_count);
  for (size_t i = 0; i < stats.level.size(); ++i) {
    sum(stats.level[i], add.level[i]);
    sum(stats.rise[i], add.rise[i]);
  }
  stats.largest = std::max(stats.largest, add.largest);
  row.builds = before.builds + 1;
  return row;
}

std::vector<Stats> InOrder(const std::vector<Row>& rows) {
  std::map<std::string_view, size_t> by_name;
  for (size_t i = 0; i < rows.size(); ++i) by_name.emplace(rows[i].stats.name, i);
  constexpr int32_t kUnknown = -3;
  constexpr int32_t kLeftOut = -2;
  std::vector<int32_t> place(rows.size(), kUnknown);
  std::vector<Stats> ordered;
  for (size_t i = 0; i < rows.size(); ++i) {
    // Up to one that is placed, then down again.
    std::vector<size_t> chain;
    int32_t above = -1;
    for (size_t at = i;;) {
      if (place[at] != kUnknown) {
        above = place[at];
        break;
      }
      place[at] = kLeftOut;  // a circle comes back to it
      chain.push_back(at);
      if (rows[at].above.empty()) break;
      const auto next = by_name.find(rows[at].above);
      if (next == by_name.end()) {
        above = kLeftOut;
        break;
      }
      at = next->second;
    }
    if (above == kLeftOut) continue;
    for (; !chain.empty(); chain.pop_back()) {
      Stats stats = rows[chain.back()].stats;
      stats.parent = above;
      above = static_cast<int32_t>(ordered.size());
      place[chain.back()] = above;
      ordered.push_back(std::move(stats));
    }
  }
  return ordered;
}

Stats Plus(Stats stats, const Stats& before, const Stats& after) {
  const auto add = [](double& to, double old, double now) { to += now - old; };
  add(stats.count, before.count, after.count);
  add(stats.log_peak, before.log_peak, after.log_peak);
  add(stats.log_peak2, before.log_peak2, after.log_peak2);
  add(stats.cpu_count, before.cpu_count, after.cpu_count);
  add(stats.log_cpu, before.log_cpu, after.log_cpu);
  add(stats.log_cpu2, before.log_cpu2, after.log_cpu2);
  add(stats.shape_count, before.shape_count, after.shape_count);
  for (size_t i = 0; i < stats.level.size(); ++i) {
    add(stats.level[i], before.level[i], after.level[i]);
    add(stats.rise[i], before.rise[i], after.rise[i]);
  }
  stats.largest = std::max(stats.largest, after.largest);
  return stats;
}

std::vector<Row> Difference(const std::vector<Stats>& before, const std::vector<Stats>& after) {
  std::vector<bool> wanted(after.size());
  for (size_t i = after.size(); i-- > 0;) {
    const bool more = i >= before.size() ? after[i].count > 0 : after[i].count > before[i].count;
    if (more) wanted[i] = true;
    if (wanted[i] && after[i].parent >= 0) wanted[static_cast<size_t>(after[i].parent)] = true;
  }
  std::vector<Row> rows;
  for (size_t i = 0; i < after.size(); ++i) {
    if (!wanted[i]) continue;
    Row row;
    row.stats.name = after[i].name;
    row.stats.key = after[i].key;
    row.stats.job = after[i].job;
    row.stats.one_source = after[i].one_source;
    row.stats.fan_out = after[i].fan_out;
    row.stats = Plus(row.stats, i < before.size() ? before[i] : Stats{}, after[i]);
    if (after[i].parent >= 0) row.above = after[static_cast<size_t>(after[i].parent)].name;
    rows.push_back(std::move(row));
  }
  return rows;
}

History::~History() {
  sqlite3_close(db_);
}

absl::Status History::Failed(const char* what) {
  return StatusOf(sqlite3_extended_errcode(db_), absl::StrCat("history ", options_.path, ": can't ",
                                                              what, ": ", sqlite3_errmsg(db_)));
}

absl::Status History::Execute(const char* sql) {
  if (sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return absl::OkStatus();
  return Failed("use it");
}

absl::StatusOr<std::unique_ptr<History>> History::TryOpen(const Options& options) {
  if (const absl::Status good = CheckFile(options.path, !options.read_only); !good.ok()) {
    return good;
  }
  sqlite3* db = nullptr;
  // Not SQLITE_OPEN_READONLY: WAL's index must be made where it is missing.
  const int code = sqlite3_open_v2(options.path.c_str(), &db,
                                   SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  if (db == nullptr) return absl::ResourceExhaustedError("history: out of memory");
  std::unique_ptr<History> history(new History(db, options));
  if (code != SQLITE_OK) return history->Failed("open it");
  sqlite3_extended_result_codes(db, 1);
  sqlite3_busy_timeout(db, static_cast<int>(options.wait.count()));
  // A file from outside may hold triggers and views that call things.
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  // Versions first: a newer file is not to be touched.
  const auto version = [&]() -> absl::StatusOr<int64_t> {
    Statement statement(db, "PRAGMA user_version");
    if (!statement.Next()) return history->Failed("read it");
    return statement.Integer(0);
  };
  absl::StatusOr<int64_t> schema = version();
  if (!schema.ok()) return schema.status();
  const auto newer = [&] {
    return absl::FailedPreconditionError(absl::StrCat("history ", options.path, ": has schema ",
                                                      *schema, "; this version knows ", kSchema));
  };
  if (*schema > kSchema) return newer();
  // What a crash of the machine takes is a build's knowledge at most: no wait for the disk.
  if (absl::Status set = history->Execute(IsNetwork(options.path)
                                              ? "PRAGMA synchronous=NORMAL"
                                              : "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; "
                                                "PRAGMA journal_size_limit=4194304");
      !set.ok()) {
    return set;
  }
  if (*schema < kSchema) {
    // Another daemon may be making it at the same moment: look again under the lock.
    if (absl::Status begun = history->Execute("BEGIN IMMEDIATE"); !begun.ok()) return begun;
    schema = version();
    if (!schema.ok()) return schema.status();
    if (*schema > kSchema) return newer();
    if (*schema < kSchema) {
      const std::string sql = absl::StrCat(kCreate, "PRAGMA user_version=", kSchema);
      if (absl::Status made = history->Execute(sql.c_str()); !made.ok()) return made;
    }
    if (absl::Status done = history->Execute("COMMIT"); !done.ok()) return done;
  }
  // Milliseconds for some MB; a damaged page must not come up in the middle of a build.
  Statement check(db, "PRAGMA quick_check(1)");
  if (!check.Next()) return history->Failed("check it");
  if (check.Text(0) != "ok") {
    return absl::DataLossError(
        absl::StrCat("history ", options.path, ": is damaged: ", check.Text(0)));
  }
  // Another program's file, or one that was cut: as bad as damaged.
  Statement columns(db, absl::StrCat("SELECT ", kColumns, " FROM class LIMIT 0"));
  columns.Next();
  if (!columns.ok()) {
    return absl::DataLossError(absl::StrCat("history ", options.path, ": has no history in it (",
                                            sqlite3_errmsg(db), ")"));
  }
  return history;
}

absl::StatusOr<std::unique_ptr<History>> History::Open(Options options) {
  if (!options.read_only) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::path(options.path).parent_path();
    if (!std::filesystem::exists(folder, error)) {
      std::filesystem::create_directories(folder, error);
      if (!error) {
        std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
      }
      if (error) {
        return absl::PermissionDeniedError(
            absl::StrCat("history ", options.path, ": can't make its folder: ", error.message()));
      }
    }
  }
  auto history = TryOpen(options);
  const auto bad = [&] {
    return absl::IsDataLoss(history.status()) || absl::IsFailedPrecondition(history.status());
  };
  if (history.ok() || options.read_only || !bad()) return history;
  // One at a time: who comes second must not set the first one's new file aside.
  const auto deadline = std::chrono::steady_clock::now() + options.wait;
  absl::StatusOr<sys::LockFile> lock = sys::LockFile::Acquire(options.path + ".lock");
  while (absl::IsAlreadyExists(lock.status()) && std::chrono::steady_clock::now() < deadline) {
    usleep(10'000);
    lock = sys::LockFile::Acquire(options.path + ".lock");
  }
  if (!lock.ok()) return history;
  history = TryOpen(options);
  if (history.ok() || !bad()) return history;
  const absl::Status why = history.status();
  const std::string to = SetAside(options.path, absl::IsDataLoss(why) ? "damaged" : "newer");
  if (to.empty()) return why;
  history = TryOpen(options);
  if (history.ok()) {
    (*history)->note_ =
        absl::StrCat(why.message(), "; it is kept as ", to, ", and a new one is begun");
  }
  return history;
}

absl::StatusOr<std::vector<Stats>> History::Load(size_t most) {
  // Tools and families before single sources of the same moment.
  Statement statement(db_, absl::StrCat("SELECT ", kColumns,
                                        " FROM class ORDER BY used_at DESC, one_source, name "
                                        "LIMIT ",
                                        most));
  std::vector<Row> rows;
  while (statement.Next()) {
    if (auto row = ReadRow(statement)) rows.push_back(*std::move(row));
  }
  if (!statement.ok()) return Failed("read it");
  return InOrder(rows);
}

absl::StatusOr<std::vector<Row>> History::List() {
  Statement statement(db_, absl::StrCat("SELECT ", kColumns, " FROM class ORDER BY name"));
  std::vector<Row> rows;
  while (statement.Next()) {
    if (auto row = ReadRow(statement)) rows.push_back(*std::move(row));
  }
  if (!statement.ok()) return Failed("read it");
  return rows;
}

absl::StatusOr<std::vector<Row>> History::Add(const std::vector<Row>& more, int64_t now) {
  if (absl::Status begun = Execute("BEGIN IMMEDIATE"); !begun.ok()) return begun;
  const auto fail = [&](absl::Status status) {
    sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
    return status;
  };
  std::vector<Row> result;
  {
    Statement read(db_, absl::StrCat("SELECT ", kColumns, " FROM class WHERE name = ?"));
    Statement write(db_, absl::StrCat("INSERT OR REPLACE INTO class (", kColumns,
                                      ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
    for (const Row& one : more) {
      if (!policy::IsSane(one.stats)) continue;
      Row added = one;
      added.used_at = now;
      added.build_count = one.stats.count;
      added.builds = one.stats.count > 0 ? 1 : 0;
      read.Reset();
      read.Bind(one.stats.name);
      Row row = added;
      if (read.Next()) {
        const auto there = ReadRow(read);
        const bool same = there && there->stats.key == one.stats.key &&
                          there->stats.job == one.stats.job &&
                          there->stats.one_source == one.stats.one_source &&
                          there->stats.fan_out == one.stats.fan_out && there->above == one.above;
        // A class that means something else by now, or a row that nobody can use, is replaced.
        if (same) row = Merge(*there, added);
        if (!policy::IsSane(row.stats)) row = added;
      }
      if (!read.ok()) return fail(Failed("read it"));
      read.Reset();
      const Stats& stats = row.stats;
      write.Reset();
      write.Bind(stats.name);
      write.Bind(row.above);
      write.Bind(stats.key);
      write.Bind(int64_t{stats.job});
      write.Bind(int64_t{stats.one_source});
      write.Bind(int64_t{stats.fan_out});
      write.Bind(stats.count);
      write.Bind(stats.log_peak);
      write.Bind(stats.log_peak2);
      write.Bind(stats.cpu_count);
      write.Bind(stats.log_cpu);
      write.Bind(stats.log_cpu2);
      write.Bind(stats.shape_count);
      write.Bind(stats.level);
      write.Bind(stats.rise);
      write.Bind(stats.largest.count);
      write.Bind(row.build_count);
      write.Bind(row.builds);
      write.Bind(row.used_at);
      write.Next();
      if (!write.ok()) return fail(Failed("write it"));
      result.push_back(std::move(row));
    }
    // The least recently used go; of the same moment single sources first.
    Statement shrink(db_, absl::StrCat("DELETE FROM class WHERE name IN (SELECT name FROM class "
                                       "ORDER BY used_at DESC, one_source, name LIMIT -1 OFFSET ",
                                       options_.most_classes, ")"));
    shrink.Next();
    if (!shrink.ok()) return fail(Failed("write it"));
  }
  if (absl::Status done = Execute("COMMIT"); !done.ok()) return fail(done);
  return result;
}

absl::StatusOr<int64_t> History::Forget(const std::string& name) {
  // UNION, not UNION ALL: ends in a circle as well.
  Statement statement(db_,
                      "WITH RECURSIVE below(name) AS (SELECT name FROM class WHERE name = ?1 UNION "
                      "SELECT class.name FROM class JOIN below ON class.above = below.name) "
                      "DELETE FROM class WHERE name IN (SELECT name FROM below)");
  statement.Bind(name);
  statement.Next();
  if (!statement.ok()) return Failed("write it");
  return int64_t{sqlite3_changes(db_)};
}

absl::StatusOr<int64_t> History::ForgetAll() {
  Statement statement(db_, "DELETE FROM class WHERE 1");
  statement.Next();
  if (!statement.ok()) return Failed("write it");
  const int64_t gone = sqlite3_changes(db_);
  // Nothing of it stays in free pages.
  if (absl::Status cleaned = Execute("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)"); !cleaned.ok()) {
    return cleaned;
  }
  return gone;
}

}  // namespace headroom::history
