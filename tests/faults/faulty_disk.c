/* A disk that fails, stops or loses power at operation N. Preloaded (LD_PRELOAD); see faulty_disk.py.

   Counts opens, reads, writes, renames, removals, syncs and new folders of what lies under one folder.
   Python, TensorFlow, SentencePiece and safetensors all call these functions of the C library.  */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, FAIL, STOP, KILL };                       /* what happens at operation N */
enum { OPEN = 1, CREATE = 2, READ = 4, WRITE = 8, RENAME = 16, UNLINK = 32, SYNC = 64, MKDIR = 128, LIST = 256 };
#define CHANGES (CREATE | WRITE | RENAME | UNLINK | MKDIR)
#define MOST_FILES 65536

static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static char root[PATH_MAX], kept[PATH_MAX];
static size_t root_length;
static long count, target, copies;
static int armed, action, error_number, forever, applies_to, stopped, hit, log_file = -1;
static char *paths[MOST_FILES];                         /* of open files under the root */

#define REAL(name) __extension__ ({ static __typeof__(&name) real; \
    if (!real) { real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); } real; })

/* ---- control, called by Python ---- */

void disk_arm(const char *folder, int what, long n, int error, int kinds, int from_then_on,
              const char *log_path, const char *copies_folder) {
  pthread_mutex_lock(&mutex);
  snprintf(root, sizeof root, "%s/", folder);
  root_length = strlen(root);
  snprintf(kept, sizeof kept, "%s", copies_folder);
  count = copies = stopped = hit = 0;
  action = what, target = n, error_number = error, applies_to = kinds, forever = from_then_on;
  log_file = *log_path ? REAL(open64)(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  armed = 1;
  pthread_mutex_unlock(&mutex);
}

long disk_disarm(int *was_hit) {
  pthread_mutex_lock(&mutex);
  armed = 0;
  if (log_file >= 0) syscall(SYS_close, log_file);
  log_file = -1;
  *was_hit = hit;
  pthread_mutex_unlock(&mutex);
  return count;
}

/* ---- the log: what an observer of the disk sees ---- */

static void note(const char *kind, unsigned long inode, const char *one, const char *other) {
  char line[3 * PATH_MAX];
  if (log_file < 0) return;
  int length = snprintf(line, sizeof line, "%ld\t%s\t%lu\t%s\t%s\n", count, kind, inode, one, other);
  syscall(SYS_write, log_file, line, length);
}

static unsigned long inode_at(const char *path) {
  struct stat s;
  return lstat(path, &s) || !S_ISREG(s.st_mode) ? 0 : s.st_ino;
}

/* Keeps the content of a file that is about to lose its name: power may fail before that is on disk. */
static void keep_removed(const char *path) {
  unsigned long inode = inode_at(path);
  char target_path[PATH_MAX + 32], name[32];
  if (!inode || !*kept) return;
  snprintf(name, sizeof name, "%ld", copies++);
  snprintf(target_path, sizeof target_path, "%s/%s", kept, name);
  if (!syscall(SYS_link, path, target_path)) note("last", inode, name, "");
}

/* Keeps what a file has when it is synced: this much survives. */
static void keep_synced(int fd, const char *path) {
  struct stat s;
  char target_path[PATH_MAX + 32], name[32], buffer[65536];
  if (!*kept || fstat(fd, &s)) return;
  if (S_ISDIR(s.st_mode)) { note("sync_folder", 0, path, ""); return; }
  snprintf(name, sizeof name, "%ld", copies++);
  snprintf(target_path, sizeof target_path, "%s/%s", kept, name);
  int from = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY), to = syscall(SYS_openat, AT_FDCWD, target_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  for (long n; from >= 0 && (n = syscall(SYS_read, from, buffer, sizeof buffer)) > 0;) syscall(SYS_write, to, buffer, n);
  syscall(SYS_close, from), syscall(SYS_close, to);
  note("synced", s.st_ino, name, "");
}

/* ---- the decision ---- */

static int is_ours(const char *path) { return armed && path && !strncmp(path, root, root_length); }

static const char *ours(int fd) { return armed && fd >= 0 && fd < MOST_FILES ? paths[fd] : NULL; }

static void track(int fd, const char *path) {
  if (fd < 0 || fd >= MOST_FILES) return;
  free(paths[fd]);
  paths[fd] = is_ours(path) ? strdup(path) : NULL;
}

static const char *absolute(int fd, const char *path, char *buffer) {
  char link[64];
  if (!armed || !path || *path == '/' || fd == AT_FDCWD) return path;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, buffer, PATH_MAX);
  if (n < 0) return path;
  snprintf(buffer + n, PATH_MAX - n, "/%s", path);
  return buffer;
}

/* 0: go on. Otherwise the operation fails with this number; of a write, the first half is done. */
static int decide(int kind, const char *name, const char *path) {
  int result = 0;
  if (stopped) return kind & CHANGES ? EIO : 0;
  ++count;
  int is_due = kind & applies_to && (count == target || (forever && count > target));
  note(name, is_due, path, "");
  if (action == FAIL && is_due) hit = 1, result = error_number;
  if ((action == STOP || action == KILL) && count == target) hit = stopped = 1, result = kind & CHANGES ? EIO : 0;
  return result;
}

static void maybe_die(void) {
  if (stopped && action == KILL) kill(getpid(), SIGKILL);
}

#define LOCKED(...) __extension__ ({ pthread_mutex_lock(&mutex); __typeof__(__VA_ARGS__) value_ = (__VA_ARGS__); pthread_mutex_unlock(&mutex); value_; })
#define FAILED(kind, name, path, value) do { int e_ = LOCKED(decide(kind, name, path)); maybe_die(); \
    if (e_) { errno = e_; return value; } } while (0)

/* ---- opening and closing ---- */

static int begin_open(const char *path, int creates) {
  return is_ours(path) ? decide(creates ? CREATE : OPEN, creates ? "create" : "open", path) : 0;
}

static void end_open(int fd, const char *path, int creates, unsigned long before) {
  if (fd < 0) return;
  track(fd, path);
  if (!is_ours(path) || !creates) return;
  unsigned long now = inode_at(path);
  if (now != before) note("new", now, path, "");
}

#define OPENING(call, path, flags) \
  int creates = ((flags) & O_CREAT) != 0; \
  pthread_mutex_lock(&mutex); \
  int e = begin_open(path, creates), fd = -1; \
  unsigned long before = creates && is_ours(path) ? inode_at(path) : 0; \
  if (!e) { fd = call; int saved = errno; end_open(fd, path, creates, before); errno = saved; } \
  pthread_mutex_unlock(&mutex); \
  maybe_die(); \
  if (e) errno = e; \
  return fd

#define MODE(flags) mode_t mode = 0; if ((flags) & (O_CREAT | __O_TMPFILE)) { va_list a; va_start(a, flags); mode = va_arg(a, int); va_end(a); }

int open(const char *path, int flags, ...) { MODE(flags); OPENING(REAL(open)(path, flags, mode), path, flags); }
int open64(const char *path, int flags, ...) { MODE(flags); OPENING(REAL(open64)(path, flags, mode), path, flags); }
int __open_2(const char *path, int flags) { OPENING(REAL(open64)(path, flags), path, flags); }
int __open64_2(const char *path, int flags) { OPENING(REAL(open64)(path, flags), path, flags); }
int openat(int at, const char *name, int flags, ...) {
  char buffer[PATH_MAX * 2]; MODE(flags); const char *path = absolute(at, name, buffer);
  OPENING(REAL(openat)(at, name, flags, mode), path, flags);
}
int openat64(int at, const char *name, int flags, ...) {
  char buffer[PATH_MAX * 2]; MODE(flags); const char *path = absolute(at, name, buffer);
  OPENING(REAL(openat64)(at, name, flags, mode), path, flags);
}

static FILE *open_stream(const char *path, const char *mode, FILE *(*real)(const char *, const char *)) {
  int creates = *mode != 'r', e;
  FILE *file = NULL;
  pthread_mutex_lock(&mutex);
  e = begin_open(path, creates);
  unsigned long before = creates && is_ours(path) ? inode_at(path) : 0;
  if (!e && (file = real(path, mode))) end_open(fileno(file), path, creates, before);
  else if (e) errno = e;
  pthread_mutex_unlock(&mutex);
  maybe_die();
  return file;
}
FILE *fopen(const char *path, const char *mode) { return open_stream(path, mode, REAL(fopen)); }
FILE *fopen64(const char *path, const char *mode) { return open_stream(path, mode, REAL(fopen64)); }

static void forget(int fd) {
  pthread_mutex_lock(&mutex);
  if (fd >= 0 && fd < MOST_FILES && paths[fd]) free(paths[fd]), paths[fd] = NULL;
  pthread_mutex_unlock(&mutex);
}

int close(int fd) { forget(fd); return REAL(close)(fd); }
int closedir(DIR *folder) { forget(dirfd(folder)); return REAL(closedir)(folder); }
DIR *opendir(const char *path) {
  if (is_ours(path)) FAILED(LIST, "list", path, NULL);
  return REAL(opendir)(path);
}

/* What a stream holds back is lost when the process dies. */
static void drop_buffer(FILE *file) {
  int nowhere = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_WRONLY | O_CLOEXEC);
  syscall(SYS_dup3, nowhere, fileno(file), O_CLOEXEC);
  syscall(SYS_close, nowhere);
}
int fclose(FILE *file) {
  int fd = fileno(file), is_tracked = ours(fd) != NULL;
  if (is_tracked && stopped) drop_buffer(file);
  forget(fd);
  return REAL(fclose)(file);
}
int fflush(FILE *file) {
  const char *path = file ? ours(fileno(file)) : NULL;
  if (path && stopped) { errno = EIO; return EOF; }
  return REAL(fflush)(file);
}

/* ---- reading and writing ---- */

#define READING(fd, call) const char *path = ours(fd); if (path) FAILED(READ, "read", path, -1); return call
ssize_t read(int fd, void *b, size_t n) { READING(fd, REAL(read)(fd, b, n)); }
ssize_t pread(int fd, void *b, size_t n, off_t o) { READING(fd, REAL(pread)(fd, b, n, o)); }
ssize_t pread64(int fd, void *b, size_t n, off64_t o) { READING(fd, REAL(pread64)(fd, b, n, o)); }
ssize_t __read_chk(int fd, void *b, size_t n, size_t s) { (void)s; READING(fd, REAL(read)(fd, b, n)); }
size_t fread(void *b, size_t size, size_t n, FILE *file) {
  const char *path = ours(fileno(file));
  if (path) FAILED(READ, "read", path, 0);
  return REAL(fread)(b, size, n, file);
}

/* A write that fails or is the last one leaves its first half. */
static ssize_t writing(int fd, const void *b, size_t n, off64_t offset, int has_offset) {
  const char *path = ours(fd);
  int e = 0, was_stopped = stopped;
  size_t part = n;
  if (path) {
    pthread_mutex_lock(&mutex);
    e = decide(WRITE, "write", path);
    if (!was_stopped) { struct stat s; if (!fstat(fd, &s)) note("dirty", s.st_ino, path, ""); }
    pthread_mutex_unlock(&mutex);
    if (e) part = was_stopped ? 0 : n / 2;
  }
  ssize_t done = part || !e ? (has_offset ? REAL(pwrite64)(fd, b, part, offset) : REAL(write)(fd, b, part)) : 0;
  maybe_die();
  if (e) { errno = e; return -1; }
  return done;
}
ssize_t write(int fd, const void *b, size_t n) { return writing(fd, b, n, 0, 0); }
ssize_t pwrite(int fd, const void *b, size_t n, off_t o) { return writing(fd, b, n, o, 1); }
ssize_t pwrite64(int fd, const void *b, size_t n, off64_t o) { return writing(fd, b, n, o, 1); }
ssize_t writev(int fd, const struct iovec *parts, int number) {
  ssize_t total = 0;
  if (!ours(fd)) return REAL(writev)(fd, parts, number);
  for (int i = 0; i < number; ++i) {
    ssize_t done = writing(fd, parts[i].iov_base, parts[i].iov_len, 0, 0);
    if (done < 0) return total ? total : -1;
    total += done;
  }
  return total;
}
size_t fwrite(const void *b, size_t size, size_t n, FILE *file) {
  const char *path = ours(fileno(file));
  if (!path) return REAL(fwrite)(b, size, n, file);
  pthread_mutex_lock(&mutex);
  int was_stopped = stopped, e = decide(WRITE, "write", path);
  struct stat s;
  if (!was_stopped && !fstat(fileno(file), &s)) note("dirty", s.st_ino, path, "");
  pthread_mutex_unlock(&mutex);
  if (e && !was_stopped) REAL(fwrite)(b, size, n / 2, file), REAL(fflush)(file);
  maybe_die();
  if (e) { errno = e; return 0; }
  return REAL(fwrite)(b, size, n, file);
}
#define COPYING(to, call) const char *path = ours(to); if (path) FAILED(WRITE, "write", path, -1); \
  ssize_t done = call; struct stat s; if (path && !fstat(to, &s)) note("dirty", s.st_ino, path, ""); return done
ssize_t sendfile(int to, int from, off_t *o, size_t n) { COPYING(to, REAL(sendfile)(to, from, o, n)); }
ssize_t sendfile64(int to, int from, off64_t *o, size_t n) { COPYING(to, REAL(sendfile64)(to, from, o, n)); }
ssize_t copy_file_range(int from, off64_t *a, int to, off64_t *o, size_t n, unsigned f) {
  COPYING(to, REAL(copy_file_range)(from, a, to, o, n, f));
}
int ftruncate(int fd, off_t n) { COPYING(fd, REAL(ftruncate)(fd, n)); }
int ftruncate64(int fd, off64_t n) { COPYING(fd, REAL(ftruncate64)(fd, n)); }

/* ---- names ---- */

static int renaming(int a, const char *old, int b, const char *new) {
  char buffers[2][PATH_MAX * 2];
  const char *from = absolute(a, old, buffers[0]), *to = absolute(b, new, buffers[1]);
  if (!is_ours(from) && !is_ours(to)) return REAL(renameat)(a, old, b, new);
  pthread_mutex_lock(&mutex);
  int e = decide(RENAME, "rename", to), result = -1;
  if (!e) {
    keep_removed(to);
    result = REAL(renameat)(a, old, b, new);
    if (!result) note("move", inode_at(to), from, to);
  } else errno = e;
  pthread_mutex_unlock(&mutex);
  maybe_die();
  return result;
}
int rename(const char *old, const char *new) { return renaming(AT_FDCWD, old, AT_FDCWD, new); }
int renameat(int a, const char *old, int b, const char *new) { return renaming(a, old, b, new); }

static int removing(int at, const char *name, int flags) {
  char buffer[PATH_MAX * 2];
  const char *path = absolute(at, name, buffer);
  if (!is_ours(path)) return REAL(unlinkat)(at, name, flags);
  pthread_mutex_lock(&mutex);
  int e = decide(UNLINK, "unlink", path), result = -1;
  if (!e) {
    if (!flags) keep_removed(path);
    result = REAL(unlinkat)(at, name, flags);
    if (!result) note("gone", 0, path, "");
  } else errno = e;
  pthread_mutex_unlock(&mutex);
  maybe_die();
  return result;
}
int unlink(const char *path) { return removing(AT_FDCWD, path, 0); }
int unlinkat(int at, const char *path, int flags) { return removing(at, path, flags); }
int remove(const char *path) { struct stat s; return removing(AT_FDCWD, path, !lstat(path, &s) && S_ISDIR(s.st_mode) ? AT_REMOVEDIR : 0); }
int rmdir(const char *path) { return removing(AT_FDCWD, path, AT_REMOVEDIR); }

static int making(int at, const char *name, mode_t mode) {
  char buffer[PATH_MAX * 2];
  const char *path = absolute(at, name, buffer);
  if (!is_ours(path)) return REAL(mkdirat)(at, name, mode);
  pthread_mutex_lock(&mutex);
  int e = decide(MKDIR, "mkdir", path), result = -1;
  if (!e) {
    result = REAL(mkdirat)(at, name, mode);
    if (!result) note("folder", 0, path, "");
  } else errno = e;
  pthread_mutex_unlock(&mutex);
  maybe_die();
  return result;
}
int mkdir(const char *path, mode_t mode) { return making(AT_FDCWD, path, mode); }
int mkdirat(int at, const char *path, mode_t mode) { return making(at, path, mode); }

static int syncing(int fd, int (*real)(int)) {
  const char *path = ours(fd);
  if (!path) return real(fd);
  pthread_mutex_lock(&mutex);
  int e = decide(SYNC, "sync", path);
  if (!e && !stopped) keep_synced(fd, path);
  pthread_mutex_unlock(&mutex);
  maybe_die();
  if (e) { errno = e; return -1; }
  return 0;                                             /* the real one would only take time */
}
int fsync(int fd) { return syncing(fd, REAL(fsync)); }
int fdatasync(int fd) { return syncing(fd, REAL(fdatasync)); }
