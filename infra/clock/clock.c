/*
 * A steppable wall clock for LD_PRELOAD. The file named by LOCKSTEP_CLOCK holds the offset in nanoseconds, as an int64.
 * Monotonic clocks are not changed.
 *
 * Calls the kernel directly: the lookup of the C library's function would allocate memory, and allocators read the time
 * before they can allocate.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void open_offset(void) {
  const char *path = getenv("LOCKSTEP_CLOCK");
  int file = path == NULL ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, sizeof *offset) != 0) abort();
  // The process may go on as another user, and open the file once more.
  fchmod(file, 0666);
  void *page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) abort();
  offset = page;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  if (syscall(SYS_clock_gettime, clock, now) != 0) return -1;
  if (offset == NULL || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return 0;
  int64_t nanos = now->tv_sec * INT64_C(1000000000) + now->tv_nsec + *offset;
  now->tv_sec = nanos / 1000000000;
  now->tv_nsec = nanos % 1000000000;
  return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *now) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (now != NULL) *now = precise.tv_sec;
  return precise.tv_sec;
}
