#include "client/cli/paths.h"

#include <absl/strings/str_cat.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "proto/headroom/v1/gate_wire.h"

namespace headroom::cli {
namespace {

constexpr char kSystemDir[] = "/run/headroom";

bool IsFile(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

bool CanBeInMakeflags(std::string_view path) {
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("/._-+,@%:=~").find(c) != std::string_view::npos ||
                       static_cast<unsigned char>(c) >= 0x80;
    if (!plain) return false;
  }
  return true;
}

std::string SocketPath(const std::string& runtime_dir) {
  return runtime_dir + "/control.sock";
}

absl::StatusOr<Places> FindPlaces(const Environment& env, uid_t uid) {
  Places places;
  if (const std::string dir = Get(env, "HEADROOM_RUNTIME_DIR"); !dir.empty()) {
    if (dir[0] != '/')
      return absl::InvalidArgumentError(
          absl::StrCat("HEADROOM_RUNTIME_DIR: '", dir, "' is not an absolute path"));
    if (!CanBeInMakeflags(dir))
      return absl::InvalidArgumentError(
          absl::StrCat("HEADROOM_RUNTIME_DIR: '", dir,
                       "' has blanks or characters that mean something "
                       "to make; use a plain path"));
    if (SocketPath(dir).size() >= sizeof(sockaddr_un::sun_path))
      return absl::InvalidArgumentError(
          absl::StrCat("HEADROOM_RUNTIME_DIR: '", dir,
                       "' is too long for a socket's address; use a "
                       "path of at most ",
                       sizeof(sockaddr_un::sun_path) - 1 - SocketPath("").size(), " characters"));
    places.lookup = {dir};
    places.own = {dir};
    return places;
  }
  places.lookup = {kSystemDir};
  if (uid == 0) {
    places.own = {kSystemDir};
    return places;
  }
  if (const std::string xdg = Get(env, "XDG_RUNTIME_DIR");
      !xdg.empty() && xdg[0] == '/' && CanBeInMakeflags(xdg) &&
      SocketPath(xdg + "/headroom").size() < sizeof(sockaddr_un::sun_path))
    places.own.push_back(xdg + "/headroom");
  places.own.push_back(absl::StrCat("/tmp/headroom-", uid));
  places.lookup.insert(places.lookup.end(), places.own.begin(), places.own.end());
  return places;
}

absl::Status PrepareRuntimeDir(const std::string& dir, uid_t uid) {
  const auto system_error = [&dir](const char* what) {
    return absl::FailedPreconditionError(
        absl::StrCat(dir, ": can't ", what, ": ", std::strerror(errno)));
  };
  if (mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) return system_error("make the folder");
  struct stat status {};
  if (lstat(dir.c_str(), &status) != 0) return system_error("look at the folder");
  if (!S_ISDIR(status.st_mode))
    return absl::FailedPreconditionError(absl::StrCat(dir, ": is not a folder; remove it"));
  if (status.st_uid != uid)
    return absl::FailedPreconditionError(
        absl::StrCat(dir, ": belongs to user ", status.st_uid, ", not to you (", uid,
                     "); remove it, or set HEADROOM_RUNTIME_DIR to a folder of yours"));
  if ((status.st_mode & 022) != 0)
    return absl::FailedPreconditionError(
        absl::StrCat(dir, ": others may write to it; chmod 700 it"));
  if (access(dir.c_str(), W_OK | X_OK) != 0) return system_error("write to the folder");
  return absl::OkStatus();
}

bool HasGate(const std::string& lane_dir) {
  struct stat status {};
  return stat((lane_dir + "/" + gate::kGateSocketName).c_str(), &status) == 0 &&
         S_ISSOCK(status.st_mode);
}

Found FindProgram(const std::string& name, const Environment& env) {
  const auto look = [](const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0)
      return errno == EACCES ? Found::Kind::kNotExecutable : Found::Kind::kNotFound;
    if (S_ISDIR(status.st_mode) || access(path.c_str(), X_OK) != 0)
      return Found::Kind::kNotExecutable;
    return Found::Kind::kExecutable;
  };
  if (name.empty()) return {};
  if (name.find('/') != std::string::npos) return {look(name), name};
  // What the C library takes where there is no PATH (confstr(3), _CS_PATH).
  const std::string list = env.contains("PATH") ? Get(env, "PATH") : "/bin:/usr/bin";
  Found best;
  size_t at = 0;
  while (at <= list.size()) {
    const size_t end = std::min(list.find(':', at), list.size());
    // An empty entry is the working directory.
    const std::string dir = end == at ? "." : list.substr(at, end - at);
    const std::string path = dir + "/" + name;
    const Found::Kind kind = look(path);
    if (kind == Found::Kind::kExecutable) return {kind, path};
    struct stat status {};
    // A folder of that name is passed over, as execvp(3) does in effect; a file that may not be
    // executed is remembered, for the better message.
    if (kind == Found::Kind::kNotExecutable && best.kind == Found::Kind::kNotFound &&
        stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode))
      best = {kind, path};
    at = end + 1;
  }
  return best;
}

std::string OwnFolder() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "" : self.parent_path().native();
}

std::string FindDaemon(const std::string& own_folder, const Environment& env) {
  if (!own_folder.empty()) {
    const std::string beside = own_folder + "/headroomd";
    if (IsFile(beside) && access(beside.c_str(), X_OK) == 0) return beside;
  }
  const Found found = FindProgram("headroomd", env);
  return found.kind == Found::Kind::kExecutable ? found.path : "";
}

std::string FindPreload(const std::string& own_folder, bool by_word_size) {
  if (own_folder.empty()) return "";
  for (const char* place : {"/../lib", "/../" HEADROOM_INSTALL_LIBDIR}) {
    std::error_code error;
    const std::filesystem::path lib = std::filesystem::canonical(own_folder + place, error);
    if (error || !IsFile(lib / "libheadroom.so")) continue;
    // AddressSanitizer wants the first library to be its own, and judges by this name on the way.
    const std::filesystem::path preload = lib / "headroom" / "preload";
    const std::filesystem::path way = preload / "libasan.so.first" / "..";
    const bool has_way = std::filesystem::is_directory(way, error);
    if (by_word_size && has_way && IsFile(preload / "$LIB" / "libheadroom.so"))
      return way / "$LIB" / "libheadroom.so";
    if (has_way) return way / ".." / ".." / "libheadroom.so";
    return lib / "libheadroom.so";
  }
  return "";
}

}  // namespace headroom::cli
