#include "client/cli/status.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "client/cli/units.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Size(uint64_t bytes) {
  return HumanBytes(static_cast<int64_t>(bytes));
}

// Cuts each line behind `width` characters (not bytes: UTF-8's later bytes don't count).
std::string CutLines(const std::string& text, size_t width) {
  if (width == 0) return text;
  std::string cut;
  size_t column = 0;
  for (const char c : text) {
    if (c == '\n') {
      column = 0;
    } else if ((static_cast<unsigned char>(c) & 0xc0) != 0x80 && ++column > width) {
      continue;
    } else if (column > width) {
      continue;
    }
    cut += c;
  }
  return cut;
}

Json MemoryJson(const v1::Memory& memory) {
  Json json;
  json["total"] = memory.total();
  json["available"] = memory.available();
  json["reserve"] = memory.reserve();
  json["expected_growth"] = memory.expected_growth();
  json["headroom"] = memory.headroom();
  json["domain"] = memory.domain();
  return json;
}

Json PoolJson(const v1::Pool& pool) {
  Json json;
  json["target"] = pool.target();
  json["minted"] = pool.minted();
  json["idle"] = pool.idle();
  json["out"] = pool.out();
  json["debt"] = pool.debt();
  return json;
}

}  // namespace

std::string StatusTable(const v1::Status& status, size_t width) {
  std::string text =
      absl::StrCat("headroomd ", Printable(status.version()),
                   status.private_daemon() ? ", private" : "", ", pid ", status.pid(), ", up ",
                   HumanDuration(std::chrono::nanoseconds(status.uptime_ns())), "\n");
  const v1::Memory& memory = status.memory();
  absl::StrAppend(&text, "memory    ", HumanBytes(memory.headroom()),
                  " headroom: ", HumanBytes(memory.available()), " available of ",
                  Size(memory.total()));
  if (!memory.domain().empty()) absl::StrAppend(&text, " (", Printable(memory.domain()), ")");
  absl::StrAppend(&text, " - ", Size(memory.reserve()), " reserve - ",
                  Size(memory.expected_growth()), " expected growth\n");
  const v1::Pool& pool = status.pool();
  absl::StrAppend(&text, "tokens    target ", pool.target(), ", minted ", pool.minted(), ", idle ",
                  pool.idle(), ", out ", pool.out());
  if (pool.debt() != 0) absl::StrAppend(&text, ", to be collected ", pool.debt());
  text += "\n";
  for (const v1::Domain& domain : status.domains()) {
    if (domain.name() == memory.domain()) continue;
    absl::StrAppend(&text, "domain    ", Printable(domain.name()), ": ",
                    HumanBytes(domain.memory().headroom()), " headroom, ",
                    HumanBytes(domain.memory().available()), " available of ",
                    Size(domain.memory().total()));
    if (domain.oom_kills() != 0)
      absl::StrAppend(&text, ", ", Count(domain.oom_kills(), "OOM kill", "OOM kills"));
    text += "\n";
  }
  if (status.broken_invariants() != 0)
    absl::StrAppend(&text, "fault     ",
                    Count(status.broken_invariants(), "broken invariant", "broken invariants"),
                    ": Headroom's own mistake, please report it with the trace\n");
  for (const std::string& note : status.notes())
    absl::StrAppend(&text, "note      ", Printable(note), "\n");
  if (status.lanes().empty()) text += "no lanes\n";
  for (const v1::Lane& lane : status.lanes()) {
    absl::StrAppend(
        &text, "\nlane ", lane.id(), "    ", Printable(lane.name()), " (", Printable(lane.kind()),
        ", user ", lane.uid(), "): ", Count(lane.cores(), "core", "cores"), ", ",
        Count(lane.clients(), "client", "clients"), ", ",
        Count(static_cast<uint64_t>(lane.jobs_size()), "job", "jobs"), ", tokens ",
        lane.pool().out(), " out, ", lane.pool().idle(), " idle of ", lane.pool().target(), "\n");
    if (!lane.waits_for().empty())
      absl::StrAppend(&text, "  waits: ", Printable(lane.waits_for()), "\n");
    if (lane.jobs().empty()) continue;
    absl::StrAppendFormat(&text, "  %8s %-8s %10s %10s %12s  %s\n", "pid", "state", "now",
                          "expected", "age", "command");
    for (const v1::Job& job : lane.jobs()) {
      absl::StrAppendFormat(&text, "  %8d %-8s %10s %10s %12s  %s %s\n", job.pid(),
                            Printable(job.state()), Size(job.bytes()), Size(job.predicted_peak()),
                            HumanDuration(std::chrono::nanoseconds(job.age_ns())),
                            Printable(job.driver()), Printable(job.source()));
    }
  }
  return CutLines(text, width);
}

std::string StatusJson(const v1::Status& status, int indent) {
  Json json;
  json["version"] = status.version();
  json["pid"] = status.pid();
  json["private"] = status.private_daemon();
  json["uptime_ns"] = status.uptime_ns();
  json["memory"] = MemoryJson(status.memory());
  json["pool"] = PoolJson(status.pool());
  json["lanes"] = Json::array();
  json["jobs"] = Json::array();
  for (const v1::Lane& lane : status.lanes()) {
    Json entry;
    entry["id"] = lane.id();
    entry["name"] = lane.name();
    entry["kind"] = lane.kind();
    entry["uid"] = lane.uid();
    entry["dir"] = lane.dir();
    entry["cores"] = lane.cores();
    entry["clients"] = lane.clients();
    entry["pool"] = PoolJson(lane.pool());
    entry["waits_for"] = lane.waits_for();
    std::map<std::string, int> states = {{"running", 0}, {"frozen", 0}, {"waiting", 0}};
    for (const v1::Job& job : lane.jobs()) {
      ++states[job.state()];
      Json line;
      line["lane"] = lane.id();
      line["pid"] = job.pid();
      line["driver"] = job.driver();
      line["source"] = job.source();
      line["state"] = job.state();
      line["bytes"] = job.bytes();
      line["predicted_peak"] = job.predicted_peak();
      line["age_ns"] = job.age_ns();
      json["jobs"].push_back(line);
    }
    entry["jobs"] = states;
    json["lanes"].push_back(entry);
  }
  json["domains"] = Json::array();
  for (const v1::Domain& domain : status.domains()) {
    Json entry;
    entry["id"] = domain.id();
    entry["parent"] = domain.parent();
    entry["name"] = domain.name();
    entry["memory"] = MemoryJson(domain.memory());
    entry["oom_kills"] = domain.oom_kills();
    entry["psi_full_avg10_percent"] = nullptr;
    if (domain.has_psi_full_avg10_permyriad())
      entry["psi_full_avg10_percent"] = domain.psi_full_avg10_permyriad() / 100.0;
    entry["shmem"] = domain.shmem();
    entry["arc_credit"] = domain.arc_credit();
    json["domains"].push_back(entry);
  }
  json["broken_invariants"] = status.broken_invariants();
  json["notes"] = Json::array();
  for (const std::string& note : status.notes()) json["notes"].push_back(note);
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace headroom::cli
