/* Stands between a process and its files, clock and threads, for tests of faults (LD_PRELOAD).
 *
 * A test maps a control block into memory and writes rules to it while the process runs: which operations on which
 * paths fail, and how. With a journal, everything that changes files below a root is written down in its order, with
 * what was synced, so that a loss of power can be tried at every point of it. tests/campaign/shim.py is its other half.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, CREATE = 4, LINK = 8, UNLINK = 16, READ = 32, TRUNCATE = 64 };
enum { FAIL = 1, TEAR = 2, SHORTEN = 3, WAIT = 4 };

struct rule {
    int32_t operations; /* Of which kinds. */
    int32_t mode;       /* FAIL with an error; TEAR: write a half, then fail; SHORTEN: write a half; WAIT. */
    int32_t error;
    int32_t pause;      /* Milliseconds. */
    int32_t skip;       /* Operations that pass first. */
    int32_t times;      /* Operations that are hit. The rule is off at 0. */
    int32_t hits;       /* Operations that were hit. */
    char path[228];     /* A part of the path. */
};

struct control {
    int32_t armed;   /* Whether rules are looked at. */
    int32_t threads; /* Threads that fail to start. */
    int32_t refused; /* Threads that did fail to start. */
    int32_t clocks;  /* Whose clock is wrong: 0 everybody's, 1 and 2 that of processes with odd and even numbers. */
    int64_t clock;   /* Nanoseconds that the wall clock is wrong by. */
    int32_t real[4]; /* Errors that the machine itself gave: ENOSPC, EROFS, EMFILE, ENOMEM. */
    struct rule rules[8];
};

enum { J_WRITE = 1, J_SYNC, J_CREATE, J_RENAME, J_LINK, J_UNLINK, J_TRUNCATE, J_MKDIR, J_RMDIR, J_NOTE, J_SYNC_ALL };

struct record {
    uint32_t kind, path_length, other_length, unused;
    uint64_t inode;
    int64_t offset;
    uint64_t length;
};

static struct control none;
static volatile struct control *control = &none;
static int journal = -1;
static char root[PATH_MAX];
static size_t root_length;
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name)                                                                                                     \
    static __typeof__(name) *real;                                                                                     \
    if (!real)                                                                                                         \
        real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

/* The next process that a test forks reads another block. */
__attribute__((visibility("default"))) int shim_attach(const char *path) {
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    if (file < 0)
        return -1;
    void *found = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (found == MAP_FAILED)
        return -1;
    control = found;
    return 0;
}

__attribute__((visibility("default"))) int shim_record(const char *path, const char *below) {
    if (!realpath(below, root))
        return -1;
    root_length = strlen(root);
    journal = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    return journal < 0 ? -1 : 0;
}

static void write_all(const void *data, size_t length) {
    const char *next = data;
    while (length) {
        ssize_t done = syscall(SYS_write, journal, next, length);
        if (done <= 0)
            abort();
        next += done;
        length -= (size_t)done;
    }
}

static void put(uint32_t kind, uint64_t inode, int64_t offset, const char *path, const char *other, const void *data,
                size_t length) {
    struct record record = {kind, path ? (uint32_t)strlen(path) : 0, other ? (uint32_t)strlen(other) : 0, 0, inode,
                            offset, length};
    write_all(&record, sizeof record);
    write_all(path, record.path_length);
    write_all(other, record.other_length);
    write_all(data, data ? length : 0);
}

__attribute__((visibility("default"))) void shim_note(const char *text) {
    if (journal < 0)
        return;
    pthread_mutex_lock(&order);
    put(J_NOTE, 0, 0, NULL, NULL, text, strlen(text));
    pthread_mutex_unlock(&order);
}

/* The path of an open file, or an empty text. */
static void path_of(int file, char *found) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, found, PATH_MAX - 1);
    found[length > 0 ? length : 0] = 0;
}

/* A path as from the root of all, links of its directory followed. */
static void absolute(int directory, const char *path, char *found) {
    char whole[2 * PATH_MAX] = "";
    if (path[0] != '/') {
        if (directory == AT_FDCWD) {
            if (!getcwd(whole, PATH_MAX))
                whole[0] = 0;
        } else
            path_of(directory, whole);
        strcat(whole, "/");
    }
    strncat(whole, path, PATH_MAX - 1);
    char *name = strrchr(whole, '/');
    *name = 0;
    char resolved[PATH_MAX];
    const char *above = whole[0] && realpath(whole, resolved) ? resolved : whole;
    snprintf(found, PATH_MAX, "%.2000s/%.2000s", above, name + 1);
}

/* What is to happen to an operation: 0 nothing, otherwise a mode, with errno set. */
static int struck(int operation, const char *path) {
    volatile struct control *block = control;
    for (int number = 0; number < 8; number++) {
        volatile struct rule *rule = &block->rules[number];
        if (!(rule->operations & operation) || rule->times <= 0 || !strstr(path, (const char *)rule->path))
            continue;
        if (__atomic_fetch_sub(&rule->skip, 1, __ATOMIC_SEQ_CST) > 0)
            continue;
        if (__atomic_fetch_sub(&rule->times, 1, __ATOMIC_SEQ_CST) <= 0)
            continue;
        __atomic_fetch_add(&rule->hits, 1, __ATOMIC_SEQ_CST);
        if (rule->mode == WAIT) {
            struct timespec pause = {rule->pause / 1000, rule->pause % 1000 * 1000000L};
            syscall(SYS_nanosleep, &pause, NULL);
            continue;
        }
        errno = rule->error;
        return rule->mode;
    }
    return 0;
}

static int struck_file(int operation, int file) {
    if (!control->armed)
        return 0;
    char path[PATH_MAX];
    path_of(file, path);
    return path[0] == '/' ? struck(operation, path) : 0;
}

static int struck_path(int operation, int directory, const char *path) {
    if (!control->armed)
        return 0;
    char whole[PATH_MAX];
    absolute(directory, path, whole);
    return struck(operation, whole);
}

/* Counts a refusal that is the machine's own. */
static void counted(void) {
    int number = errno == ENOSPC ? 0 : errno == EROFS ? 1 : errno == EMFILE ? 2 : errno == ENOMEM ? 3 : -1;
    if (number >= 0)
        __atomic_fetch_add(&control->real[number], 1, __ATOMIC_SEQ_CST);
}

static int is_below(const char *path) {
    return !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

/* Whether a file's changes are written down; then its inode and path are told. */
static int is_recorded(int file, uint64_t *inode, char *path) {
    if (journal < 0)
        return 0;
    struct stat found;
    if (fstat(file, &found) || !(S_ISREG(found.st_mode) || S_ISDIR(found.st_mode)))
        return 0;
    path_of(file, path);
    if (!is_below(path))
        return 0;
    *inode = found.st_ino;
    return 1;
}

#define RECORDED(file)                                                                                                 \
    uint64_t inode = 0;                                                                                                \
    char recorded_path[PATH_MAX];                                                                                      \
    int recorded = is_recorded(file, &inode, recorded_path);                                                           \
    if (recorded)                                                                                                      \
        pthread_mutex_lock(&order)

#define DONE(success, ...)                                                                                             \
    if (recorded) {                                                                                                    \
        int kept = errno;                                                                                              \
        if (success)                                                                                                   \
            put(__VA_ARGS__);                                                                                          \
        errno = kept;                                                                                                  \
        pthread_mutex_unlock(&order);                                                                                  \
    }

/* Writes */

ssize_t write(int file, const void *data, size_t length) {
    REAL(write);
    int mode = struck_file(WRITE, file), error = errno;
    size_t wanted = mode == TEAR || (mode == SHORTEN && length > 1) ? length / 2 : length;
    if (mode == FAIL)
        return -1;
    RECORDED(file);
    ssize_t done = real(file, data, wanted);
    if (done < 0)
        counted();
    DONE(done > 0, J_WRITE, inode, lseek(file, 0, SEEK_CUR) - done, NULL, NULL, data, (size_t)done)
    if (mode == TEAR) {
        errno = error;
        return -1;
    }
    return done;
}

ssize_t pwrite(int file, const void *data, size_t length, off_t offset) {
    REAL(pwrite);
    int mode = struck_file(WRITE, file), error = errno;
    size_t wanted = mode == TEAR || (mode == SHORTEN && length > 1) ? length / 2 : length;
    if (mode == FAIL)
        return -1;
    RECORDED(file);
    ssize_t done = real(file, data, wanted, offset);
    if (done < 0)
        counted();
    DONE(done > 0, J_WRITE, inode, offset, NULL, NULL, data, (size_t)done)
    if (mode == TEAR) {
        errno = error;
        return -1;
    }
    return done;
}

ssize_t pwrite64(int file, const void *data, size_t length, off64_t offset) {
    return pwrite(file, data, length, offset);
}

/* Vectors go part by part, which is as legal as a short write. */
ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(writev);
    if (!control->armed && journal < 0) {
        ssize_t done = real(file, parts, count);
        if (done < 0)
            counted();
        return done;
    }
    ssize_t all = 0;
    for (int number = 0; number < count; number++) {
        ssize_t done = write(file, parts[number].iov_base, parts[number].iov_len);
        if (done < 0)
            return all ? all : -1;
        all += done;
        if ((size_t)done < parts[number].iov_len)
            break;
    }
    return all;
}

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t offset) {
    REAL(pwritev);
    if (!control->armed && journal < 0) {
        ssize_t done = real(file, parts, count, offset);
        if (done < 0)
            counted();
        return done;
    }
    ssize_t all = 0;
    for (int number = 0; number < count; number++) {
        ssize_t done = pwrite(file, parts[number].iov_base, parts[number].iov_len, offset + all);
        if (done < 0)
            return all ? all : -1;
        all += done;
        if ((size_t)done < parts[number].iov_len)
            break;
    }
    return all;
}

ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t offset) {
    return pwritev(file, parts, count, offset);
}

/* Copies inside of the kernel are made with plain writes instead, which callers have to know how to do. */
ssize_t sendfile(int out, int in, off_t *offset, size_t length) {
    REAL(sendfile);
    if (!control->armed && journal < 0)
        return real(out, in, offset, length);
    errno = EINVAL;
    return -1;
}

ssize_t sendfile64(int out, int in, off64_t *offset, size_t length) { return sendfile(out, in, offset, length); }

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t length, unsigned flags) {
    REAL(copy_file_range);
    if (!control->armed && journal < 0)
        return real(in, from, out, to, length, flags);
    errno = ENOSYS;
    return -1;
}

int ftruncate(int file, off_t length) {
    REAL(ftruncate);
    if (struck_file(TRUNCATE, file))
        return -1;
    RECORDED(file);
    int done = real(file, length);
    DONE(!done, J_TRUNCATE, inode, length, NULL, NULL, NULL, 0)
    return done;
}

int ftruncate64(int file, off64_t length) { return ftruncate(file, length); }

int posix_fallocate(int file, off_t offset, off_t length) {
    REAL(posix_fallocate);
    if (struck_file(WRITE, file))
        return errno;
    RECORDED(file);
    struct stat before = {0};
    fstat(file, &before);
    int done = real(file, offset, length);
    if (done) {
        errno = done;
        counted();
    }
    DONE(!done && offset + length > before.st_size, J_TRUNCATE, inode, offset + length, NULL, NULL, NULL, 0)
    return done;
}

int posix_fallocate64(int file, off64_t offset, off64_t length) { return posix_fallocate(file, offset, length); }

int fallocate(int file, int mode, off_t offset, off_t length) {
    REAL(fallocate);
    if (struck_file(WRITE, file))
        return -1;
    if (journal >= 0) {
        errno = EOPNOTSUPP;
        return -1;
    }
    int done = real(file, mode, offset, length);
    if (done)
        counted();
    return done;
}

int fallocate64(int file, int mode, off64_t offset, off64_t length) { return fallocate(file, mode, offset, length); }

int fsync(int file) {
    REAL(fsync);
    if (struck_file(SYNC, file))
        return -1;
    RECORDED(file);
    int done = real(file);
    DONE(!done, J_SYNC, inode, 0, recorded_path, NULL, NULL, 0)
    return done;
}

int fdatasync(int file) {
    REAL(fdatasync);
    if (struck_file(SYNC, file))
        return -1;
    RECORDED(file);
    int done = real(file);
    DONE(!done, J_SYNC, inode, 0, recorded_path, NULL, NULL, 0)
    return done;
}

int sync_file_range(int file, off64_t offset, off64_t length, unsigned flags) {
    /* It promises nothing about a loss of power, so nothing of it is written down. */
    REAL(sync_file_range);
    return struck_file(SYNC, file) ? -1 : real(file, offset, length, flags);
}

/* Syncs all that there is; on Linux they return when it is done. */
int syncfs(int file) {
    REAL(syncfs);
    if (struck_file(SYNC, file))
        return -1;
    RECORDED(file);
    int done = real(file);
    DONE(!done, J_SYNC_ALL, 0, 0, NULL, NULL, NULL, 0)
    return done;
}

void sync(void) {
    REAL(sync);
    if (journal < 0) {
        real();
        return;
    }
    pthread_mutex_lock(&order);
    real();
    put(J_SYNC_ALL, 0, 0, NULL, NULL, NULL, 0);
    pthread_mutex_unlock(&order);
}

/* Reads */

ssize_t pread(int file, void *data, size_t length, off_t offset) {
    REAL(pread);
    return struck_file(READ, file) ? -1 : real(file, data, length, offset);
}

ssize_t pread64(int file, void *data, size_t length, off64_t offset) { return pread(file, data, length, offset); }

ssize_t read(int file, void *data, size_t length) {
    REAL(read);
    return struck_file(READ, file) ? -1 : real(file, data, length);
}

/* Names */

static int open_any(int directory, const char *path, int flags, mode_t mode) {
    REAL(openat);
    if (flags & O_CREAT && struck_path(CREATE, directory, path))
        return -1;
    if (journal < 0 || !(flags & (O_CREAT | O_TRUNC))) {
        int file = real(directory, path, flags, mode);
        if (file < 0)
            counted();
        return file;
    }
    char whole[PATH_MAX];
    absolute(directory, path, whole);
    if (!is_below(whole))
        return real(directory, path, flags, mode);
    pthread_mutex_lock(&order);
    struct stat found;
    int there = !lstat(whole, &found);
    int file = real(directory, path, flags, mode);
    int kept = errno;
    if (file >= 0 && !fstat(file, &found) && S_ISREG(found.st_mode)) {
        if (!there)
            put(J_CREATE, found.st_ino, 0, whole, NULL, NULL, 0);
        else if (flags & O_TRUNC)
            put(J_TRUNCATE, found.st_ino, 0, NULL, NULL, NULL, 0);
    }
    pthread_mutex_unlock(&order);
    errno = kept;
    return file;
}

#define MODE(flags)                                                                                                    \
    mode_t mode = 0;                                                                                                   \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) {                                                     \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode = va_arg(rest, mode_t);                                                                                   \
        va_end(rest);                                                                                                  \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    return open_any(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE(flags)
    return open_any(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int openat(int directory, const char *path, int flags, ...) {
    MODE(flags)
    return open_any(directory, path, flags, mode);
}

int openat64(int directory, const char *path, int flags, ...) {
    MODE(flags)
    return open_any(directory, path, flags | O_LARGEFILE, mode);
}

int creat(const char *path, mode_t mode) { return open_any(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* A change of names, which is written down with both of them. */
#define NAMES(operation, kind, from_directory, from, to_directory, to, call)                                           \
    if (struck_path(operation, to_directory, to))                                                                      \
        return -1;                                                                                                     \
    if (journal < 0) {                                                                                                 \
        int done = call;                                                                                               \
        if (done)                                                                                                      \
            counted();                                                                                                 \
        return done;                                                                                                   \
    }                                                                                                                  \
    char one[PATH_MAX], other[PATH_MAX];                                                                               \
    absolute(from_directory, from, one);                                                                               \
    absolute(to_directory, to, other);                                                                                 \
    int recorded = is_below(one) || is_below(other);                                                                   \
    if (recorded)                                                                                                      \
        pthread_mutex_lock(&order);                                                                                    \
    int done = call;                                                                                                   \
    DONE(!done, kind, 0, 0, one, other, NULL, 0)                                                                       \
    return done

int renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags) {
    REAL(renameat2);
    NAMES(LINK, J_RENAME, from_directory, from, to_directory, to, real(from_directory, from, to_directory, to, flags));
}

int renameat(int from_directory, const char *from, int to_directory, const char *to) {
    REAL(renameat);
    NAMES(LINK, J_RENAME, from_directory, from, to_directory, to, real(from_directory, from, to_directory, to));
}

int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
    REAL(linkat);
    NAMES(LINK, J_LINK, from_directory, from, to_directory, to, real(from_directory, from, to_directory, to, flags));
}

int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int directory, const char *path, int flags) {
    REAL(unlinkat);
    int kind = flags & AT_REMOVEDIR ? J_RMDIR : J_UNLINK;
    NAMES(UNLINK, kind, directory, path, directory, path, real(directory, path, flags));
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }

/* That of the C library calls its own unlink and rmdir, which are not these. */
int remove(const char *path) {
    struct stat found;
    if (lstat(path, &found))
        return -1;
    return unlinkat(AT_FDCWD, path, S_ISDIR(found.st_mode) ? AT_REMOVEDIR : 0);
}

int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int directory, const char *path, mode_t mode) {
    REAL(mkdirat);
    NAMES(CREATE, J_MKDIR, directory, path, directory, path, real(directory, path, mode));
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* Descriptors and memory, which run out by themselves */

int socket(int domain, int type, int protocol) {
    REAL(socket);
    int file = real(domain, type, protocol);
    if (file < 0)
        counted();
    return file;
}

void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset) {
    void *found = (void *)syscall(SYS_mmap, address, length, protection, flags, file, offset);
    if (found == MAP_FAILED)
        counted();
    return found;
}

void *mmap64(void *address, size_t length, int protection, int flags, int file, off64_t offset) {
    return mmap(address, length, protection, flags, file, offset);
}

#ifdef __GLIBC__
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);

void *malloc(size_t length) {
    void *found = __libc_malloc(length);
    if (!found)
        counted();
    return found;
}

void *calloc(size_t count, size_t length) {
    void *found = __libc_calloc(count, length);
    if (!found)
        counted();
    return found;
}

void *realloc(void *before, size_t length) {
    void *found = __libc_realloc(before, length);
    if (!found && length)
        counted();
    return found;
}
#endif

/* The clock and threads */

int clock_gettime(clockid_t clock, struct timespec *found) {
    REAL(clock_gettime);
    int done = real(clock, found);
    if (!done && control->clock && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) &&
        (!control->clocks || control->clocks == 2 - (getpid() & 1))) {
        int64_t all = found->tv_sec * 1000000000LL + found->tv_nsec + control->clock;
        found->tv_sec = all / 1000000000LL;
        found->tv_nsec = all % 1000000000LL;
    }
    return done;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int done = clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return done;
}

time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found)
        *found = now.tv_sec;
    return now.tv_sec;
}

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes, void *(*run)(void *),
                   void *restrict argument) {
    REAL(pthread_create);
    if (control->threads > 0 && __atomic_fetch_sub(&control->threads, 1, __ATOMIC_SEQ_CST) > 0) {
        __atomic_fetch_add(&control->refused, 1, __ATOMIC_SEQ_CST);
        return EAGAIN;
    }
    int done = real(thread, attributes, run, argument);
    if (done == EAGAIN)
        /* Of the memory that its stack needs. */
        __atomic_fetch_add(&control->real[3], 1, __ATOMIC_SEQ_CST);
    return done;
}
