// A machine on which half a second passes before a socket listens, for a program that is started with this library in
// LD_PRELOAD: whoever comes in between finds a socket at which nobody listens.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

extern "C" int listen(int socket, int backlog) noexcept {
  const timespec half_a_second{.tv_sec = 0, .tv_nsec = 500'000'000};
  ::nanosleep(&half_a_second, nullptr);
  return static_cast<int>(::syscall(SYS_listen, socket, backlog));
}
