/* Makes one system call under a folder fail: preload this, then set it up through `fail_at`.
 *
 * fail_at(folder, n, error): the n-th call from now on that touches a file under the folder fails
 * with that errno; n = 0 never. With error = -1 a write stops half-way instead. `calls()` tells how
 * many there were since. `pause_calls(1)` exempts the calling thread until `pause_calls(0)`.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static char watched[4096];
static int failing, failure, seen;
static __thread int paused;

void fail_at(const char *folder, int number, int error) {
    snprintf(watched, sizeof watched, "%s", folder);
    failing = number;
    failure = error;
    seen = 0;
}

void pause_calls(int now) { paused = now; }

int calls(void) { return seen; }

static int fails_path(const char *path) {
    if (paused || !watched[0] || strncmp(path, watched, strlen(watched))) return 0;
    if (__sync_add_and_fetch(&seen, 1) != failing) return 0;
    if (failure > 0) errno = failure;
    return 1;
}

static int fails_fd(int fd) {
    char link[64], path[4096];
    if (paused || !watched[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return fails_path(path);
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        REAL(int, name, const char *, int, ...); \
        return fails_path(path) && failure > 0 ? -1 : real(path, flags, mode); \
    }

OPEN(open)
OPEN(open64)

#define ONE_PATH(name, extra, pass) \
    int name(const char *path extra) { \
        REAL(int, name, const char *, ...); \
        return fails_path(path) && failure > 0 ? -1 : real(path pass); \
    }
#define COMMA ,

ONE_PATH(unlink, , )
ONE_PATH(mkdir, COMMA mode_t mode, COMMA mode)

int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    return fails_path(to) && failure > 0 ? -1 : real(from, to);
}

int fsync(int fd) {
    REAL(int, fsync, int);
    return fails_fd(fd) && failure > 0 ? -1 : real(fd);
}

int ftruncate64(int fd, off_t size) {
    REAL(int, ftruncate64, int, off_t);
    return fails_fd(fd) && failure > 0 ? -1 : real(fd, size);
}

int flock(int fd, int operation) {
    REAL(int, flock, int, int);
    return fails_fd(fd) && failure > 0 ? -1 : real(fd, operation);
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    if (!fails_fd(fd)) return real(fd, data, size);
    return failure > 0 ? -1 : real(fd, data, (size + 1) / 2);
}
