/* forbid CALL[,CALL...] PROGRAM [ARGUMENT...]: runs PROGRAM where those system calls fail with
   EPERM (seccomp), as in a sandbox. CALL is wait4, sigmask, sigaction or signalfd. Plain C: the
   headers are the kernel's. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int NumberOf(const char* name) {
  if (strcmp(name, "wait4") == 0) return SYS_wait4;
  if (strcmp(name, "sigmask") == 0) return SYS_rt_sigprocmask;
  if (strcmp(name, "sigaction") == 0) return SYS_rt_sigaction;
  if (strcmp(name, "signalfd") == 0) return SYS_signalfd4;
  return -1;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  struct sock_filter filter[32];
  unsigned short size = 0;
  filter[size++] =
      (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (char* name = strtok(argv[1], ","); name != NULL; name = strtok(NULL, ",")) {
    const int number = NumberOf(name);
    if (number < 0 || size > 28) {
      fprintf(stderr, "forbid: no system call that is known here: %s\n", name);
      return 2;
    }
    filter[size++] =
        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1);
    filter[size++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  }
  filter[size++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const struct sock_fprog program = {size, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    perror("forbid");
    return 3;
  }
  execvp(argv[2], argv + 2);
  perror(argv[2]);
  return 127;
}
