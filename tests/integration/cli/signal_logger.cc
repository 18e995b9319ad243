// For the tests of `headroom run`: writes the name of every signal it gets as a line of the file
// that is its argument, first of all "ready"; ends with 42 at SIGUSR2. SIGTSTP has its default.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>

namespace {

int g_log = -1;

void Write(const char* text) {
  if (write(g_log, text, std::strlen(text)) < 0) _exit(1);
}

void OnSignal(int number) {
  switch (number) {
    case SIGHUP:
      return Write("HUP\n");
    case SIGINT:
      return Write("INT\n");
    case SIGQUIT:
      return Write("QUIT\n");
    case SIGTERM:
      return Write("TERM\n");
    case SIGUSR1:
      return Write("USR1\n");
    case SIGALRM:
      return Write("ALRM\n");
    case SIGCONT:
      return Write("CONT\n");
    case SIGUSR2:
      Write("USR2\n");
      _exit(42);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  g_log = open(argv[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (g_log < 0) return 2;
  struct sigaction action {};
  action.sa_handler = OnSignal;
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT})
    sigaction(number, &action, nullptr);
  Write("ready\n");
  while (true) pause();
}
