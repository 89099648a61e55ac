#include "tests/support/device/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include "tests/support/device/host_memory.h"

namespace ddp::test::device {
namespace {

// A signal handler can be handed nothing.
const Memory* the_memory = nullptr;
std::string (*the_description)(const void*) = nullptr;
struct sigaction others_action {};

void say(const std::string& text) {
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
}

void on_fault(int signal, siginfo_t* info, void* context) {
  if (the_memory != nullptr && info->si_code > 0 && note_early_access(info->si_addr)) return;  // and it is tried again
  if (the_memory != nullptr && info->si_code > 0 && the_memory->device_of(info->si_addr) >= 0) {
    say("The host accessed device memory: " + the_description(info->si_addr) + "\n");
    std::signal(SIGABRT, SIG_DFL);
    std::abort();
  }
  if ((others_action.sa_flags & SA_SIGINFO) != 0) return others_action.sa_sigaction(signal, info, context);
  if (others_action.sa_handler != SIG_DFL && others_action.sa_handler != SIG_IGN) {
    return others_action.sa_handler(signal);
  }
  sigaction(signal, &others_action, nullptr);  // the access is tried again, and ends the process
}

char* map(int file, size_t bytes, int protection) {
  void* place = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (place == MAP_FAILED) throw std::runtime_error("simulated device: its memory cannot be mapped");
  return static_cast<char*>(place);
}

}  // namespace

Memory::Memory(int devices, size_t bytes_each, std::string (*describe)(const void* shown))
    : bytes_each_(bytes_each), total_(static_cast<size_t>(devices) * bytes_each) {
  const int file = memfd_create("simulated devices", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(total_)) != 0) {
    throw std::runtime_error("simulated device: no file in memory");
  }
  shown_ = map(file, total_, PROT_NONE);
  real_ = map(file, total_, PROT_READ | PROT_WRITE);
  close(file);
  the_memory = this;
  the_description = describe;
  catch_host_accesses();
}

Memory::~Memory() {
  the_memory = nullptr;
  munmap(shown_, total_);
  munmap(real_, total_);
}

int Memory::device_of(const void* shown) const {
  const char* address = static_cast<const char*>(shown);
  if (address < shown_ || address >= shown_ + total_) return -1;
  return static_cast<int>(static_cast<size_t>(address - shown_) / bytes_each_);
}

void Memory::catch_host_accesses() {
  struct sigaction current {};
  sigaction(SIGSEGV, nullptr, &current);
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == &on_fault) return;
  others_action = current;
  struct sigaction own {};
  own.sa_flags = SA_SIGINFO | SA_NODEFER;
  own.sa_sigaction = &on_fault;
  sigaction(SIGSEGV, &own, nullptr);
}

}  // namespace ddp::test::device
