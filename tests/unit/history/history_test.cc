#include "server/history/history.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "server/history/place.h"
#include "server/history/text.h"
#include "server/policy/predict.h"
#include "tests/support/testing.h"

namespace headroom::history {
namespace {

using policy::Profile;
using policy::Stats;
using testing::TempDir;

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A profile that has seen `count` cicc of this source, of `bytes` each.
void See(Profile& profile, const std::string& source, int count, double bytes) {
  const uint32_t klass = policy::ToolClass(profile, "cicc", source);
  for (int i = 0; i < count; ++i) {
    policy::Usage use;
    using std::chrono::seconds;
    for (int s = 0; s <= 20; ++s) {
      policy::Update(use, policy::Bytes{static_cast<int64_t>(bytes * s / 20)}, seconds(s),
                     policy::Time(seconds(100 + s)));
    }
    policy::Learn(profile, klass, use);
  }
}

std::vector<Row> Seen(const std::string& source, int count, double bytes) {
  Profile profile;
  See(profile, source, count, bytes);
  return Difference({}, profile.classes);
}

std::unique_ptr<History> Open(const std::string& path, size_t most = 20'000) {
  auto history = History::Open({.path = path, .most_classes = most});
  INFO(history.status());
  REQUIRE(history.ok());
  return *std::move(history);
}

const Stats* Find(const std::vector<Stats>& all, const std::string& name) {
  for (const Stats& stats : all) {
    if (stats.name == name) return &stats;
  }
  return nullptr;
}

TEST_CASE("history: what one build has seen is there for the next") {
  const TempDir dir;
  const std::string path = (dir / "state/headroom/history.sqlite").string();
  Profile first;
  See(first, "csrc/flash_bwd_hdim128_bf16.cu", 3, 6e9);
  See(first, "csrc/flash_fwd_hdim64_bf16.cu", 2, 4e9);
  {
    const auto history = Open(path);
    CHECK(history->note().empty());
    REQUIRE(history->Add(Difference({}, first.classes), 1000).ok());
  }
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  const auto loaded = Open(path)->Load();
  REQUIRE(loaded.ok());
  Profile second;
  policy::Recall(second, *loaded);
  REQUIRE(second.classes.size() == first.classes.size());
  for (const Stats& stats : first.classes) {
    INFO(stats.name);
    REQUIRE(second.index.contains(stats.name));
    const Stats& back = second.classes[second.index.at(stats.name)];
    CHECK(back.count == stats.count);
    CHECK(back.log_peak == stats.log_peak);
    CHECK(back.level == stats.level);
    CHECK(back.largest == stats.largest);
    const std::string above =
        stats.parent < 0 ? "" : first.classes[static_cast<size_t>(stats.parent)].name;
    CHECK((back.parent < 0 ? "" : second.classes[static_cast<size_t>(back.parent)].name) == above);
  }
}

TEST_CASE("history: older builds count less, parts of builds take little away") {
  const TempDir dir;
  const auto history = Open((dir / "h.sqlite").string());
  REQUIRE(history->Add(Seen("a_b_c.cu", 100, 2e9), 1).ok());
  // As large a build again: the old one counts half.
  auto rows = history->Add(Seen("a_b_c.cu", 100, 4e9), 2);
  REQUIRE(rows.ok());
  CHECK(rows->front().stats.count == Approx(150));
  CHECK(TypicalPeak(rows->front().stats) ==
        Approx(std::exp((std::log(2e9) + 2 * std::log(4e9)) / 3)));
  // One process: hardly anything of what is known goes.
  rows = history->Add(Seen("a_b_c.cu", 1, 4e9), 3);
  REQUIRE(rows.ok());
  CHECK(rows->front().stats.count > 149);
  CHECK(rows->front().stats.count < 151);
  // However many builds, the weight stays within that of about two.
  for (int i = 0; i < 50; ++i) rows = history->Add(Seen("a_b_c.cu", 100, 4e9), 4 + i);
  REQUIRE(rows.ok());
  CHECK(rows->front().stats.count < 201);
  CHECK(rows->front().builds == 53);
}

TEST_CASE("history: two daemons at once add to each other's") {
  const TempDir dir;
  const std::string path = (dir / "h.sqlite").string();
  constexpr int kDaemons = 4;
  constexpr int kBuilds = 10;
  std::vector<std::thread> daemons;
  std::vector<std::string> errors(kDaemons);
  for (size_t d = 0; d < kDaemons; ++d) {
    daemons.emplace_back([&, d] {
      for (int i = 0; i < kBuilds; ++i) {
        auto history = History::Open({.path = path, .wait = std::chrono::milliseconds(30'000)});
        if (!history.ok()) {
          errors[d] = std::string(history.status().message());
          return;
        }
        const std::string source = "src/d" + std::to_string(d) + "_" + std::to_string(i) + "_x.cu";
        const auto added = (*history)->Add(Seen(source, 1, 1e9), i);
        if (!added.ok()) errors[d] = std::string(added.status().message());
        if (!(*history)->note().empty()) errors[d] = (*history)->note();
      }
    });
  }
  for (std::thread& daemon : daemons) daemon.join();
  for (const std::string& error : errors) CHECK(error == "");
  const auto rows = Open(path)->List();
  REQUIRE(rows.ok());
  int sources = 0;
  int64_t builds = 0;
  for (const Row& row : *rows) {
    sources += row.stats.one_source;
    if (row.stats.name == "cicc") builds = row.builds;
  }
  CHECK(sources == kDaemons * kBuilds);
  CHECK(builds == kDaemons * kBuilds);
}

TEST_CASE("history: another's lock is waited for, not for ever") {
  const TempDir dir;
  const std::string path = (dir / "h.sqlite").string();
  Open(path);
  sqlite3* other = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &other) == SQLITE_OK);
  REQUIRE(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK);
  auto history = History::Open({.path = path, .wait = std::chrono::milliseconds(50)});
  REQUIRE(history.ok());
  const auto refused = (*history)->Add(Seen("a_b.cu", 1, 1e9), 1);
  CHECK(absl::IsUnavailable(refused.status()));
  REQUIRE(sqlite3_exec(other, "COMMIT", nullptr, nullptr, nullptr) == SQLITE_OK);
  CHECK((*history)->Add(Seen("a_b.cu", 1, 1e9), 1).ok());
  sqlite3_close(other);
}

TEST_CASE("history: a damaged or newer file is set aside, once, and kept") {
  const TempDir dir;
  const std::string path = (dir / "h.sqlite").string();
  SECTION("no database at all") {
    testing::WriteFile(path, std::string(8192, 'x'));
    auto history = Open(path);
    CHECK(Contains(history->note(), path + ".damaged"));
    CHECK(testing::ReadFile(path + ".damaged") == std::string(8192, 'x'));
    CHECK(history->Add(Seen("a_b.cu", 1, 1e9), 1).ok());
    // Else its log, which lies beside the file, would still hold what is good.
    history.reset();
    CHECK(Open(path)->note().empty());
    testing::WriteFile(path, std::string(8192, 'y'));
    CHECK(Contains(Open(path)->note(), path + ".damaged-1"));
    CHECK(testing::ReadFile(path + ".damaged") == std::string(8192, 'x'));
  }
  SECTION("another program's") {
    sqlite3* other = nullptr;
    REQUIRE(sqlite3_open(path.c_str(), &other) == SQLITE_OK);
    REQUIRE(sqlite3_exec(other, "CREATE TABLE class (a); PRAGMA user_version=1", nullptr, nullptr,
                         nullptr) == SQLITE_OK);
    sqlite3_close(other);
    CHECK(Contains(Open(path)->note(), ".damaged"));
  }
  SECTION("a newer version's") {
    Open(path);
    sqlite3* other = nullptr;
    REQUIRE(sqlite3_open(path.c_str(), &other) == SQLITE_OK);
    REQUIRE(sqlite3_exec(other, "PRAGMA user_version=2", nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(other);
    const auto refused = History::Open({.path = path, .read_only = true});
    CHECK(absl::IsFailedPrecondition(refused.status()));
    const auto history = Open(path);
    CHECK(Contains(history->note(), path + ".newer"));
    CHECK(Contains(history->note(), "schema 2"));
    CHECK(testing::fs::exists(path + ".newer"));
  }
}

TEST_CASE("history: where none can be, the error says why") {
  const TempDir dir;
  testing::WriteFile(dir / "file", "");
  const auto below_file = History::Open({.path = (dir / "file/h.sqlite").string()});
  CHECK_FALSE(below_file.ok());
  CHECK(Contains(std::string(below_file.status().message()), "file/h.sqlite"));
  // A link of somebody's must not lead elsewhere.
  REQUIRE(symlink((dir / "target").c_str(), (dir / "link.sqlite").c_str()) == 0);
  CHECK_FALSE(History::Open({.path = (dir / "link.sqlite").string()}).ok());
  CHECK_FALSE(testing::fs::exists(dir / "target"));
  CHECK(absl::IsNotFound(
      History::Open({.path = (dir / "none.sqlite").string(), .read_only = true}).status()));
  CHECK_FALSE(testing::fs::exists(dir / "none.sqlite"));
}

TEST_CASE("history: bounded, the least recently used go first") {
  const TempDir dir;
  const auto history = Open((dir / "h.sqlite").string(), 20);
  for (int i = 0; i < 30; ++i) {
    REQUIRE(history->Add(Seen("kernel_x_y" + std::to_string(i) + ".cu", 1, 1e9), i).ok());
  }
  const auto rows = history->List();
  REQUIRE(rows.ok());
  CHECK(rows->size() == 20);
  const auto loaded = history->Load();
  REQUIRE(loaded.ok());
  CHECK(Find(*loaded, "cicc") != nullptr);
  CHECK(Find(*loaded, "cicc: kernel_x_y29.cu") != nullptr);
  CHECK(Find(*loaded, "cicc: kernel_x_y0.cu") == nullptr);
}

TEST_CASE("history: forgets a class with all below it, or everything") {
  const TempDir dir;
  const auto history = Open((dir / "h.sqlite").string());
  REQUIRE(history->Add(Seen("flash_bwd_hdim64_a.cu", 1, 1e9), 1).ok());
  REQUIRE(history->Add(Seen("flash_fwd_hdim64_a.cu", 1, 1e9), 1).ok());
  CHECK(history->Forget("no such").value() == 0);
  CHECK(history->Forget("cicc flash_bwd_hdim64").value() == 2);
  CHECK(history->List()->size() == 3);
  CHECK(history->ForgetAll().value() == 3);
  CHECK(history->List()->empty());
}

TEST_CASE("history: as text and back") {
  std::vector<Row> rows = Seen("csrc/flash_bwd_hdim64_a.cu", 3, 1e9);
  const auto back = FromJson(ToJson(rows));
  INFO(back.status());
  REQUIRE(back.ok());
  REQUIRE(back->size() == rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    CHECK((*back)[i].stats == rows[i].stats);
    CHECK((*back)[i].above == rows[i].above);
  }
  CHECK_FALSE(FromJson("").ok());
  CHECK_FALSE(FromJson("[]").ok());
  CHECK(Contains(std::string(FromJson(R"({"headroom_history": 2})").status().message()), "2"));
  CHECK_FALSE(FromJson(R"({"headroom_history": 1})").ok());
  CHECK_FALSE(FromJson(R"({"headroom_history": 1, "classes": [{"name": 3}]})").ok());
  rows[0].stats.count = 1e9;
  CHECK_FALSE(FromJson(ToJson(rows)).ok());
}

TEST_CASE("history: rows in any order, lost parents and circles") {
  std::vector<Row> rows(5);
  rows[0].stats.name = "child";
  rows[0].above = "root";
  rows[1].stats.name = "root";
  rows[2].stats.name = "lost";
  rows[2].above = "nobody";
  rows[3].stats.name = "a";
  rows[3].above = "b";
  rows[4].stats.name = "b";
  rows[4].above = "a";
  const auto ordered = InOrder(rows);
  REQUIRE(ordered.size() == 2);
  CHECK(ordered[0].name == "root");
  CHECK(ordered[1].name == "child");
  CHECK(ordered[1].parent == 0);
}

TEST_CASE("history: what no processes can have had is not taken in") {
  Profile profile;
  std::vector<Stats> hostile(5);
  hostile[0].name = "nan";
  hostile[0].count = std::nan("");
  hostile[1].name = "negative";
  hostile[1].count = -1;
  hostile[2].name = "squares";
  hostile[2].count = 2;
  hostile[2].log_peak = 40;
  hostile[2].log_peak2 = 1;
  hostile[3].name = "upward";
  hostile[3].parent = 4;
  hostile[4].name = "wide";
  hostile[4].fan_out = 1000;
  policy::Recall(profile, hostile);
  CHECK(profile.classes.empty());
}

TEST_CASE("history: the folder of a source outside of the build folder is no one's business") {
  Profile profile;
  policy::ToolClass(profile, "cicc", "/home/alice/secret/kernel_a_b.cu");
  policy::ToolClass(profile, "cicc", "/home/bob/kernel_a_b.cu");
  int sources = 0;
  for (const Stats& stats : profile.classes) {
    INFO(stats.name);
    CHECK_FALSE(Contains(stats.name, "alice"));
    CHECK_FALSE(Contains(stats.name, "secret"));
    sources += stats.one_source;
  }
  CHECK(sources == 2);
}

Surroundings Of(uid_t uid, const std::string& home) {
  Surroundings around;
  around.uid = uid;
  around.home = home;
  return around;
}

TEST_CASE("history: where it is") {
  Surroundings user = Of(1000, "/home/u");
  CHECK(HistoryPath(user).value() == "/home/u/.local/state/headroom/history.sqlite");
  user.xdg_state = "relative";
  CHECK(HistoryPath(user).value() == "/home/u/.local/state/headroom/history.sqlite");
  user.xdg_state = "/s";
  CHECK(HistoryPath(user).value() == "/s/headroom/history.sqlite");
  user.runtime_dir = "/run/other";
  CHECK(HistoryPath(user).value() == "/run/other/history.sqlite");
  user.history = "off";
  CHECK(HistoryPath(user).value().empty());
  user.history = "/x/y";
  CHECK(HistoryPath(user).value() == "/x/y");
  user.history = "on";
  CHECK(absl::IsInvalidArgument(HistoryPath(user).status()));
  CHECK(absl::IsNotFound(HistoryPath(Of(1000, "")).status()));
  CHECK(HistoryPath(Of(0, "/root")).value() == "/var/lib/headroom/history.sqlite");
}

}  // namespace
}  // namespace headroom::history
