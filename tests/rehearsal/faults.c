/* Preloaded into a process: the n-th call of one function on a file below a folder fails, or a signal
   is raised just before it. Armed by the process itself with fault_arm; a forked child is not armed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *CALLS[] = {"rename", "fsync", "write", "pwrite", "unlink", "mkdir"};
#define KINDS ((int)(sizeof CALLS / sizeof *CALLS))

static char armed_under[PATH_MAX];
static int armed_call, armed_at, armed_signal, armed_errno;
static pid_t armed_pid;
static volatile int seen[KINDS];

static int kind_of(const char *call)
{
    int kind = 0;
    while (kind < KINDS && strcmp(call, CALLS[kind])) kind++;
    return kind;
}

/* at 0: nothing fails, calls are only counted. */
void fault_arm(const char *call, const char *under, int at, int signal_number, int error)
{
    snprintf(armed_under, sizeof armed_under, "%s/", under);
    armed_call = kind_of(call), armed_at = at, armed_signal = signal_number, armed_errno = error;
    memset((void *)seen, 0, sizeof seen);
    armed_pid = getpid();
}

int fault_seen(const char *call) { return seen[kind_of(call)]; }

/* Whether the call is to fail; errno is set then. */
static int meet(const char *call, const char *path)
{
    if (armed_pid != getpid() || !path || strncmp(path, armed_under, strlen(armed_under))) return 0;
    int kind = kind_of(call);
    if (__sync_add_and_fetch(&seen[kind], 1) != armed_at || kind != armed_call) return 0;
    if (armed_signal) kill(getpid(), armed_signal);
    errno = armed_errno;
    return armed_errno != 0;
}

static int meet_handle(const char *call, int handle)
{
    char link[64], path[PATH_MAX];
    if (armed_pid != getpid()) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    return meet(call, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int rename(const char *from, const char *to)
{
    return meet("rename", to) ? -1 : REAL(rename)(from, to);
}

int unlink(const char *path) { return meet("unlink", path) ? -1 : REAL(unlink)(path); }

int unlinkat(int folder, const char *path, int flags)
{
    return meet_handle("unlink", folder) ? -1 : REAL(unlinkat)(folder, path, flags);
}

int mkdir(const char *path, mode_t mode)
{
    return meet("mkdir", path) ? -1 : REAL(mkdir)(path, mode);
}

int fsync(int handle) { return meet_handle("fsync", handle) ? -1 : REAL(fsync)(handle); }

ssize_t write(int handle, const void *data, size_t size)
{
    return meet_handle("write", handle) ? -1 : REAL(write)(handle, data, size);
}

ssize_t pwrite(int handle, const void *data, size_t size, off_t offset)
{
    return meet_handle("pwrite", handle) ? -1 : REAL(pwrite)(handle, data, size, offset);
}

ssize_t pwrite64(int handle, const void *data, size_t size, off64_t offset)
{
    return meet_handle("pwrite", handle) ? -1 : REAL(pwrite64)(handle, data, size, offset);
}
