// Looks at this machine and a build folder for `headroom doctor`. Changes nothing; starts tools
// only to ask for their versions, and one harmless program with the preload library.
#ifndef HEADROOM_CLIENT_CLI_DOCTOR_FACTS_H_
#define HEADROOM_CLIENT_CLI_DOCTOR_FACTS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "client/cli/doctor.h"
#include "client/cli/paths.h"
#include "server/sys/roots.h"

namespace headroom::cli {

// What the kernel says. `pid`: whose cgroups and limits (0: ourselves).
MachineFacts CollectMachine(const sys::Roots& roots, const Environment& env, uid_t uid,
                            pid_t pid = 0);
TmpFacts CollectTmp(const Environment& env);
// Build tools of PATH, and the compilers that they would start.
std::vector<ToolFacts> CollectTools(const Environment& env);
// One program's file: how it is loaded.
ToolFacts InspectTool(std::string name, std::string path);
// `own_folder`: where headroom's own program is.
GateFacts CollectGate(const Environment& env, const std::string& own_folder);
DaemonFacts CollectDaemon(const Environment& env, uid_t uid);
FolderFacts CollectFolder(const std::string& path);

DoctorFacts CollectFacts(const Environment& env, const std::string& folder);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_DOCTOR_FACTS_H_
