// Faults in the system calls that write: a library to preload (LD_PRELOAD).
//
// The file named by REGARD_FAULTS is a `Plan` that every process which has it shares. Each call that opens, writes, names or
// removes something below `root` is counted over all of them; call number `target` fails, writes half, or ends its process.
// The clock on the wall is `offset` seconds ahead, and after `room` more bytes the disk below `root` is full.

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 16384, NAME = 12, PATH = 228 };
enum { COUNT, ERROR, SHORT, KILL, TORN };

typedef struct {
    long armed, calls, target, action, error, lasting, hit, offset, room;
    char root[256];
    struct { char name[NAME]; int writes; char path[PATH - 4 + 16]; } log[CALLS];
} Plan;

static Plan *plan;

#define REAL(kind, name) ({ static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #kind); real; })

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("REGARD_FAULTS");
    if (!path) return;
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *at = mmap(NULL, sizeof(Plan), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (at != MAP_FAILED) plan = at;
}

static int below(const char *path) {
    size_t length = strlen(plan->root);
    return length && !strncmp(path, plan->root, length) && (path[length] == '/' || !path[length]);
}

static int of_file(int file, char *out) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, out, PATH_MAX - 1);
    if (size < 0) return 0;
    out[size] = 0;
    return below(out);
}

static int of_path(int folder, const char *path, char *out) {
    if (!path) return 0;
    if (path[0] == '/') {
        snprintf(out, PATH_MAX, "%s", path);
        return below(out);
    }
    char base[PATH_MAX];
    if (folder == AT_FDCWD) {
        if (syscall(SYS_getcwd, base, sizeof base) <= 0) return 0;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t size = readlink(link, base, sizeof base - 1);
        if (size < 0) return 0;
        base[size] = 0;
    }
    if (snprintf(out, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return 0;
    return below(out);
}

static void end_here(void) {
    syscall(SYS_kill, (int)syscall(SYS_getpid), SIGKILL);
    for (;;) syscall(SYS_pause);
}

// What this call should do: COUNT (nothing), or ERROR with errno set, or SHORT and TORN, which only `write` is asked for.
static long meet(const char *name, const char *path, int writes) {
    long number = __atomic_add_fetch(&plan->calls, 1, __ATOMIC_SEQ_CST);
    if (number <= CALLS) {
        __typeof__(&plan->log[0]) row = &plan->log[number - 1];
        size_t skip = strlen(plan->root), length = strlen(path + skip);
        if (length >= sizeof row->path) skip += length - sizeof row->path + 1;
        row->writes = writes;
        strncpy(row->name, name, NAME - 1);
        strncpy(row->path, path + skip, sizeof row->path - 1);
    }
    if (!plan->target || number < plan->target) return COUNT;
    if (plan->action == ERROR && plan->error == ENOSPC && !writes) return COUNT;  // only what writes needs room
    if (number > plan->target && !(plan->lasting && writes)) return COUNT;
    if (number == plan->target) plan->hit = 1;
    if (plan->action == KILL) end_here();
    if (plan->action == ERROR) errno = (int)plan->error;
    return plan->action;
}

static int on(void) { return plan && plan->armed; }

static int fails(const char *name, const char *path, int writes) { return meet(name, path, writes) == ERROR; }

// Whether the disk has room for so many more bytes; only looked at if there is a limit.
static int full(size_t count) {
    if (plan->room < 0) return 0;
    if (__atomic_sub_fetch(&plan->room, (long)count, __ATOMIC_SEQ_CST) >= 0) return 0;
    __atomic_store_n(&plan->room, 0, __ATOMIC_SEQ_CST);
    plan->hit = 1;
    errno = ENOSPC;
    return 1;
}

static int may_open(int folder, const char *path, int flags) {
    char at[PATH_MAX];
    if (!on() || !of_path(folder, path, at)) return 1;
    int creates = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    int writes = creates || (flags & O_ACCMODE) != O_RDONLY;
    if (creates && full(0)) return 0;
    return !fails(creates ? "create" : writes ? "open-write" : "open", at, writes);
}

#define MODE mode_t mode = 0; if (flags & (O_CREAT | __O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        MODE return may_open(AT_FDCWD, path, flags) ? REAL(name, open)(path, flags, mode) : -1; }
#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        MODE return may_open(folder, path, flags) ? REAL(name, openat)(folder, path, flags, mode) : -1; }
#ifndef __O_TMPFILE
#define __O_TMPFILE 020000000
#endif
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

DIR *opendir(const char *path) {
    char at[PATH_MAX];
    if (on() && of_path(AT_FDCWD, path, at) && fails("open", at, 0)) return NULL;
    return REAL(opendir, opendir)(path);
}

ssize_t write(int file, const void *data, size_t count) {
    char at[PATH_MAX];
    if (!on() || !count || !of_file(file, at)) return REAL(write, write)(file, data, count);
    if (full(count)) return -1;
    switch (meet("write", at, 1)) {
    case ERROR:
        return -1;
    case SHORT:
        return REAL(write, write)(file, data, count > 1 ? count / 2 : count);
    case TORN:
        REAL(write, write)(file, data, count / 2);
        end_here();
    }
    return REAL(write, write)(file, data, count);
}

#define CALL(result, wrong, name, writes, found, parameters, given) \
    result name parameters { \
        char at[PATH_MAX]; \
        if (on() && found && fails(#name, at, writes)) return wrong; \
        return REAL(name, name) given; \
    }
CALL(ssize_t, -1, pwrite, 1, of_file(file, at), (int file, const void *data, size_t count, off_t from), (file, data, count, from))
CALL(ssize_t, -1, pwrite64, 1, of_file(file, at), (int file, const void *data, size_t count, off64_t from), (file, data, count, from))
CALL(ssize_t, -1, writev, 1, of_file(file, at), (int file, const struct iovec *parts, int count), (file, parts, count))
CALL(ssize_t, -1, copy_file_range, 1, of_file(to, at), (int from, off64_t *a, int to, off64_t *b, size_t count, unsigned flags), (from, a, to, b, count, flags))
CALL(ssize_t, -1, sendfile, 1, of_file(to, at), (int to, int from, off_t *start, size_t count), (to, from, start, count))
CALL(ssize_t, -1, sendfile64, 1, of_file(to, at), (int to, int from, off64_t *start, size_t count), (to, from, start, count))
CALL(int, -1, fsync, 1, of_file(file, at), (int file), (file))
CALL(int, -1, fdatasync, 1, of_file(file, at), (int file), (file))
CALL(int, -1, ftruncate, 1, of_file(file, at), (int file, off_t size), (file, size))
CALL(int, -1, ftruncate64, 1, of_file(file, at), (int file, off64_t size), (file, size))
CALL(int, -1, truncate, 1, of_path(AT_FDCWD, path, at), (const char *path, off_t size), (path, size))
CALL(int, -1, truncate64, 1, of_path(AT_FDCWD, path, at), (const char *path, off64_t size), (path, size))
CALL(int, errno, posix_fallocate, 1, of_file(file, at), (int file, off_t from, off_t size), (file, from, size))
CALL(int, errno, posix_fallocate64, 1, of_file(file, at), (int file, off64_t from, off64_t size), (file, from, size))
CALL(int, -1, rename, 1, of_path(AT_FDCWD, to, at), (const char *from, const char *to), (from, to))
CALL(int, -1, renameat, 1, of_path(b, to, at), (int a, const char *from, int b, const char *to), (a, from, b, to))
CALL(int, -1, link, 1, of_path(AT_FDCWD, to, at), (const char *from, const char *to), (from, to))
CALL(int, -1, symlink, 1, of_path(AT_FDCWD, to, at), (const char *from, const char *to), (from, to))
CALL(int, -1, mkdir, 1, of_path(AT_FDCWD, path, at), (const char *path, mode_t mode), (path, mode))
CALL(int, -1, mkdirat, 1, of_path(folder, path, at), (int folder, const char *path, mode_t mode), (folder, path, mode))
CALL(int, -1, rmdir, 0, of_path(AT_FDCWD, path, at), (const char *path), (path))
CALL(int, -1, unlink, 0, of_path(AT_FDCWD, path, at), (const char *path), (path))
CALL(int, -1, unlinkat, 0, of_path(folder, path, at), (int folder, const char *path, int flags), (folder, path, flags))

int clock_gettime(clockid_t which, struct timespec *out) {
    int found = REAL(clock_gettime, clock_gettime)(which, out);
    if (plan && !found && which == CLOCK_REALTIME) out->tv_sec += plan->offset;
    return found;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    int found = REAL(gettimeofday, gettimeofday)(out, zone);
    if (plan && !found && out) out->tv_sec += plan->offset;
    return found;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
