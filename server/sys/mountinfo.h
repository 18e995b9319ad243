// /proc/PID/mountinfo (proc_pid_mountinfo(5)): where each cgroup hierarchy is mounted.
#ifndef HEADROOM_SERVER_SYS_MOUNTINFO_H_
#define HEADROOM_SERVER_SYS_MOUNTINFO_H_

#include <string>
#include <string_view>
#include <vector>

namespace headroom::sys {

struct Mount {
  std::string root;           // the folder of the file system that is seen at mount_point
  std::string mount_point;    // unescaped
  std::string type;           // "cgroup", "cgroup2", "ext4", ...
  std::string super_options;  // "rw,memory"
};

// Lines that don't parse are left out.
std::vector<Mount> ParseMountInfo(std::string_view text);

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_MOUNTINFO_H_
