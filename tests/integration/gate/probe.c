// A program for the gate's tests: does what its words say, one after the other. Plain C and libc
// only, so that any compiler and any C library can build it (musl, 32-bit, with ASan).
//
//   say TEXT | err TEXT     a line on stdout, stderr
//   exit N | signal N       ends
//   sleep SECONDS | burn SECONDS   the second one burns CPU time
//   alloc MIB               touches that much memory and keeps it
//   cat | eat N             copies stdin to stdout; reads N bytes of it
//   append FILE TEXT        a line at the end of FILE
//   once FILE WORD ARG      does WORD ARG only if FILE isn't there, and creates it
//   spawn SECONDS | orphan SECONDS   a child that sleeps; one whose parent is gone. Prints its pid
//   ids | fds               what it finds: signals, ids, name; open descriptors
//   handle N                from now on prints a line at signal N and goes on
//   default N | ignore N | block N
//   run N WORD...           runs itself with the next N words, waits, prints how it ended
//   exec PATH WORD...       becomes that program
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void OnSignal(int number) {
  char text[32];
  const int size = snprintf(text, sizeof text, "signal %d\n", number);
  if (write(1, text, (size_t)size) < 0) _exit(99);
}

static void Sleep(double seconds) {
  struct timespec rest = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  while (nanosleep(&rest, &rest) != 0 && errno == EINTR) {
  }
}

static void Burn(double seconds) {
  struct timespec now;
  do {
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  } while ((double)now.tv_sec + (double)now.tv_nsec * 1e-9 < seconds);
}

static void PrintIds(void) {
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, NULL, &blocked);
  printf("blocked");
  for (int i = 1; i < 65; ++i) {
    if (sigismember(&blocked, i) == 1) printf(" %d", i);
  }
  printf("\nnot default");
  for (int i = 1; i < 32; ++i) {
    struct sigaction action;
    if (sigaction(i, NULL, &action) == 0 && action.sa_handler != SIG_DFL) printf(" %d", i);
  }
  char name[64] = "";
  FILE* comm = fopen("/proc/self/comm", "r");
  if (comm != NULL) {
    if (fgets(name, sizeof name, comm) == NULL) name[0] = '\0';
    fclose(comm);
  }
  printf("\nname %ssession %d own %d\n", name, getsid(0) == getsid(getppid()),
         tcgetpgrp(0) == getpgrp());
}

static void PrintDescriptors(void) {
  for (int fd = 0; fd < 1024; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags < 0) continue;
    struct stat info;
    fstat(fd, &info);
    printf("fd %d flags %d type %o offset %ld\n", fd, flags, (unsigned)info.st_mode & S_IFMT,
           (long)lseek(fd, 0, SEEK_CUR));
  }
}

static void PrintEnd(int status) {
  if (WIFEXITED(status)) printf("exit %d\n", WEXITSTATUS(status));
  if (WIFSIGNALED(status)) printf("killed %d\n", WTERMSIG(status));
}

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int i = 1; i < argc; ++i) {
    const char* word = argv[i];
    const char* next = i + 1 < argc ? argv[i + 1] : "";
    if (strcmp(word, "cat") == 0) {
      char data[4096];
      ssize_t size;
      while ((size = read(0, data, sizeof data)) > 0) {
        if (write(1, data, (size_t)size) != size) return 98;
      }
      continue;
    }
    if (strcmp(word, "ids") == 0) {
      PrintIds();
      continue;
    }
    if (strcmp(word, "fds") == 0) {
      PrintDescriptors();
      continue;
    }
    ++i;  // All others have an operand.
    const double number = atof(next);
    if (strcmp(word, "say") == 0) {
      puts(next);
    } else if (strcmp(word, "err") == 0) {
      fprintf(stderr, "%s\n", next);
    } else if (strcmp(word, "exit") == 0) {
      return atoi(next);
    } else if (strcmp(word, "signal") == 0) {
      kill(getpid(), atoi(next));
      Sleep(10);
    } else if (strcmp(word, "sleep") == 0) {
      Sleep(number);
    } else if (strcmp(word, "burn") == 0) {
      Burn(number);
    } else if (strcmp(word, "alloc") == 0) {
      const size_t size = (size_t)(number * 1048576);
      char* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) return 97;
      for (size_t at = 0; at < size; at += 4096) memory[at] = 1;
    } else if (strcmp(word, "eat") == 0) {
      char data[4096];
      for (int left = atoi(next); left > 0;) {
        const ssize_t size = read(0, data, left < 4096 ? (size_t)left : 4096);
        if (size <= 0) break;
        left -= (int)size;
      }
    } else if (strcmp(word, "append") == 0) {
      const int fd = open(next, O_WRONLY | O_CREAT | O_APPEND, 0600);
      char line[256];
      const int size = snprintf(line, sizeof line, "%s\n", i + 1 < argc ? argv[i + 1] : "");
      if (write(fd, line, (size_t)size) != size) return 96;
      close(fd);
      ++i;
    } else if (strcmp(word, "once") == 0) {
      const int fd = open(next, O_WRONLY | O_CREAT | O_EXCL, 0600);
      if (fd < 0) {
        i += 2;
      } else {
        close(fd);
      }
    } else if (strcmp(word, "spawn") == 0 || strcmp(word, "orphan") == 0) {
      const pid_t child = fork();
      if (child == 0) {
        if (word[0] == 'o' && fork() != 0) _exit(0);
        printf("%s %d\n", word, getpid());
        Sleep(number);
        _exit(0);
      }
      if (word[0] == 'o') waitpid(child, NULL, 0);
    } else if (strcmp(word, "handle") == 0) {
      struct sigaction action = {.sa_handler = OnSignal, .sa_flags = SA_RESTART};
      sigaction(atoi(next), &action, NULL);
    } else if (strcmp(word, "default") == 0) {
      signal(atoi(next), SIG_DFL);
    } else if (strcmp(word, "ignore") == 0) {
      signal(atoi(next), SIG_IGN);
    } else if (strcmp(word, "block") == 0) {
      sigset_t set;
      sigemptyset(&set);
      sigaddset(&set, atoi(next));
      sigprocmask(SIG_BLOCK, &set, NULL);
    } else if (strcmp(word, "run") == 0) {
      const int count = atoi(next);
      const pid_t child = fork();
      if (child == 0) {
        char* words[64] = {argv[0]};
        for (int j = 0; j < count && j < 62; ++j) words[j + 1] = argv[i + 1 + j];
        execv("/proc/self/exe", words);
        _exit(95);
      }
      int status = 0;
      waitpid(child, &status, 0);
      PrintEnd(status);
      i += count;
    } else if (strcmp(word, "exec") == 0) {
      execv(next, argv + i);
      return 94;
    } else {
      fprintf(stderr, "unknown word %s\n", word);
      return 93;
    }
  }
  return 0;
}
