// What sys's tests share: a temporary folder, fake /proc and cgroup trees in it, the texts of real
// kernels, and children that end on demand.
#ifndef HEADROOM_TESTS_UNIT_SYS_SYS_FIXTURE_H_
#define HEADROOM_TESTS_UNIT_SYS_SYS_FIXTURE_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>

#include "server/sys/roots.h"

namespace headroom::sys {

// A folder of its own, removed with all that is in it.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  // Writes a file in place (an open descriptor sees the new text), and the folders above it.
  void Write(std::string_view name, std::string_view text) const;
  void MakeFolder(std::string_view name) const;
  void Remove(std::string_view name) const;
  // A fake tree: /proc at "proc", everything that the kernel names below the folder itself.
  Roots roots() const;

 private:
  std::string path_;
};

// A text of tests/fuzz/corpus/sys.
std::string KernelText(std::string_view name);

// A forked child that runs `body` and ends with what it returns. Killed and reaped at the latest
// when it goes out of scope.
class Child {
 public:
  explicit Child(const std::function<int()>& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }
  void Kill() const;
  int Wait();  // reaps it; its wait status

 private:
  pid_t pid_ = 0;
  bool reaped_ = false;
};

// Sleeps till it is killed.
int Sleep();

// Waits up to 10 s for `condition`; false: it never came true.
bool Eventually(const std::function<bool()>& condition);

}  // namespace headroom::sys

#endif  // HEADROOM_TESTS_UNIT_SYS_SYS_FIXTURE_H_
