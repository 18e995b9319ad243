#include "server/daemon/tree.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace headroom::daemon {
namespace {

using policy::LaneId;
using policy::Role;

class Deriver {
 public:
  Deriver(const std::vector<TreeProcess>& processes, const std::vector<TreeRoot>& roots)
      : processes_(processes), roots_(roots) {}

  TreeView Run() {
    const size_t n = processes_.size();
    view_.lane_of.assign(n, LaneId::kNone);
    view_.job_of.assign(n, -1);
    for (const TreeRoot& root : roots_) view_.lanes[root.lane];
    SortByDepth();
    FindMembers();
    FindClients();
    FindJobs();
    return std::move(view_);
  }

 private:
  int32_t IndexOf(int32_t pid) const {
    const auto at = std::lower_bound(
        processes_.begin(), processes_.end(), pid,
        [](const TreeProcess& process, int32_t want) { return process.id.pid < want; });
    if (at == processes_.end() || at->id.pid != pid) return -1;
    return static_cast<int32_t>(at - processes_.begin());
  }

  // Parents before children. A snapshot isn't atomic: with a pid used again it may even have a
  // circle, which is cut where it is entered.
  void SortByDepth() {
    const size_t n = processes_.size();
    parent_.assign(n, -1);
    children_.assign(n, {});
    for (size_t i = 0; i < n; ++i) {
      const int32_t parent = processes_[i].ppid > 0 ? IndexOf(processes_[i].ppid) : -1;
      // A parent never starts after its child: such a pid was used again.
      if (parent >= 0 && parent != static_cast<int32_t>(i) &&
          processes_[static_cast<size_t>(parent)].id.start <= processes_[i].id.start) {
        parent_[i] = parent;
        children_[static_cast<size_t>(parent)].push_back(static_cast<int32_t>(i));
      }
    }
    order_.reserve(n);
    std::vector<int32_t> stack;
    std::vector<bool> seen(n, false);
    for (size_t i = 0; i < n; ++i) {
      if (parent_[i] < 0) stack.push_back(static_cast<int32_t>(i));
    }
    for (size_t start = 0;; ++start) {
      while (!stack.empty()) {
        const size_t at = static_cast<size_t>(stack.back());
        stack.pop_back();
        if (seen[at]) continue;
        seen[at] = true;
        order_.push_back(static_cast<int32_t>(at));
        for (const int32_t child : children_[at]) stack.push_back(child);
      }
      while (start < n && seen[start]) ++start;
      if (start >= n) break;
      std::erase(children_[static_cast<size_t>(parent_[start])], static_cast<int32_t>(start));
      parent_[start] = -1;
      stack.push_back(static_cast<int32_t>(start));
    }
  }

  const TreeRoot* RootOf(LaneId lane) const {
    for (const TreeRoot& root : roots_) {
      if (root.lane == lane) return &root;
    }
    return nullptr;
  }

  void FindMembers() {
    // What a process hands down: its own lane, or the lane that it is the root of.
    std::vector<LaneId> handed(processes_.size(), LaneId::kNone);
    for (const int32_t index : order_) {
      const size_t i = static_cast<size_t>(index);
      const TreeProcess& process = processes_[i];
      LaneId lane = parent_[i] >= 0 ? handed[static_cast<size_t>(parent_[i])] : LaneId::kNone;
      if (process.env_lane != LaneId::kNone) lane = process.env_lane;
      const TreeRoot* root = RootOf(lane);
      // Handed down all the same: below sudo there may be a process of the lane's user again.
      const bool member = root != nullptr && root->uid == process.uid && root->root != process.id;
      view_.lane_of[i] = member ? lane : LaneId::kNone;
      handed[i] = root != nullptr ? lane : LaneId::kNone;
      for (const TreeRoot& other : roots_) {
        if (other.root && other.root == process.id) handed[i] = other.lane;
      }
      if (member) view_.lanes[lane].members.push_back(process.id);
    }
    for (auto& [lane, tree] : view_.lanes) std::sort(tree.members.begin(), tree.members.end());
  }

  void FindClients() {
    const size_t n = processes_.size();
    client_.assign(n, false);
    // A known client of the same lane below it, itself excluded.
    std::vector<bool> above_client(n, false);
    for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
      const size_t i = static_cast<size_t>(*at);
      const TreeProcess& process = processes_[i];
      const LaneId lane = view_.lane_of[i];
      bool child_in_lane = false;
      for (const int32_t child : children_[i]) {
        const size_t c = static_cast<size_t>(child);
        if (view_.lane_of[c] != lane) continue;
        child_in_lane = true;
        if (client_[c] || above_client[c]) above_client[i] = true;
      }
      if (lane == LaneId::kNone || process.dead) continue;
      client_[i] = process.role == Role::kClient || (process.takes_tokens && child_in_lane) ||
                   (process.opener && child_in_lane && !above_client[i] && !process.is_shell &&
                    process.role == Role::kOther) ||
                   (process.opener && child_in_lane && process.role == Role::kDriver);
    }
  }

  // Tokens' worth of what is below a client's child (or of the child): 1, or the sum over the
  // clients in it where there are any.
  int Weight(size_t i, size_t client, LaneId lane, bool* has_client) {
    if (view_.lane_of[i] != lane) return 0;
    if (client_[i]) {
      *has_client = true;
      view_.lanes[lane].nested.push_back(processes_[i].id);
      return std::max(1, Leaves(i));
    }
    int below = 0;
    bool client_below = false;
    for (const int32_t child : children_[i]) {
      below += Weight(static_cast<size_t>(child), client, lane, &client_below);
    }
    *has_client = *has_client || client_below;
    if (client_below) return below;
    return UsesTokensForThreads(processes_[i].name) ? std::max(1, processes_[i].threads) : 0;
  }

  void MarkJob(size_t i, LaneId lane, int32_t job) {
    if (view_.lane_of[i] != lane) return;
    view_.job_of[i] = job;
    for (const int32_t child : children_[i]) MarkJob(static_cast<size_t>(child), lane, job);
  }

  int Leaves(size_t client) {
    const LaneId lane = view_.lane_of[client];
    int leaves = 0;
    for (const int32_t child : children_[client]) {
      const size_t c = static_cast<size_t>(child);
      bool has_client = false;
      // A child outside of the lane (set-user-ID, another lane's `run`) was started with a token
      // all the same.
      leaves += std::max(1, Weight(c, client, lane, &has_client));
      if (!has_client && !processes_[c].dead) {
        view_.lanes[lane].jobs.push_back({processes_[c].id, processes_[client].id});
        MarkJob(c, lane, child);
      }
    }
    return leaves;
  }

  void FindJobs() {
    std::vector<bool> below_client(processes_.size(), false);
    for (const int32_t index : order_) {
      const size_t i = static_cast<size_t>(index);
      const LaneId lane = view_.lane_of[i];
      // Below a client of the same lane, with whatever between.
      if (parent_[i] >= 0) {
        const size_t parent = static_cast<size_t>(parent_[i]);
        below_client[i] = below_client[parent] || (client_[parent]);
        if (view_.lane_of[parent] != lane && lane != LaneId::kNone &&
            view_.lane_of[parent] != LaneId::kNone) {
          below_client[i] = false;  // another lane begins here
        }
        for (const TreeRoot& root : roots_) {
          if (root.root && root.lane == lane && root.root == processes_[parent].id) {
            below_client[i] = false;
          }
        }
      }
      if (lane == LaneId::kNone || !client_[i] || below_client[i]) continue;
      TreeLane& tree = view_.lanes[lane];
      tree.clients.push_back(processes_[i].id);
      tree.explained += std::max(0, Leaves(i) - 1);
    }
    for (auto& [lane, tree] : view_.lanes) {
      std::sort(tree.clients.begin(), tree.clients.end());
      std::sort(tree.nested.begin(), tree.nested.end());
      std::sort(tree.jobs.begin(), tree.jobs.end(),
                [](const TreeJob& a, const TreeJob& b) { return a.job < b.job; });
    }
  }

  const std::vector<TreeProcess>& processes_;
  const std::vector<TreeRoot>& roots_;
  TreeView view_;
  std::vector<int32_t> parent_;
  std::vector<std::vector<int32_t>> children_;
  std::vector<int32_t> order_;
  std::vector<bool> client_;
};

}  // namespace

bool UsesTokensForThreads(std::string_view name) {
  return name == "rustc";
}

TreeView DeriveTree(const std::vector<TreeProcess>& processes, const std::vector<TreeRoot>& roots) {
  return Deriver(processes, roots).Run();
}

}  // namespace headroom::daemon
