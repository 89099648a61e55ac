// A rank that fails in the way its argument names, for failure_handlers_test.py. No LibTorch, so it starts at once.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include <ddprun/base/failure_handlers.h>

namespace {

struct NoSuchShard : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Longer than what is reported of a message, of characters of two bytes.
std::string long_text(std::string text) {
  for (int i = 0; i < 10'000; ++i) text += "\u00fc";
  return text;
}

[[gnu::noinline]] void look_up(const std::string& shard) {
  if (!shard.empty()) throw NoSuchShard(shard);
}

[[gnu::noinline]] int overflow(int depth) {
  volatile char frame[512] = {};
  frame[0] = static_cast<char>(depth);
  return depth < 0 ? 0 : overflow(depth + 1) + frame[0];
}

// The processor is to see it, not UBSan.
[[gnu::noinline, gnu::no_sanitize("undefined")]] int divide(int dividend, int divisor) {
  return dividend / divisor;
}

void read_behind_the_end_of_a_file() {
  char name[] = "/tmp/ddprun_test_XXXXXX";
  const int file = mkstemp(name);
  unlink(name);
  const auto* data = static_cast<volatile char*>(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0));
  std::printf("%d", data[0]);
}

void crash_in_a_child() {
  const pid_t child = fork();
  if (child == 0) std::abort();
  int status = 0;
  waitpid(child, &status, 0);
  std::exit(WIFSIGNALED(status) ? 3 : 4);
}

void write_error_file_first() {
  std::ofstream(std::getenv("TORCHELASTIC_ERROR_FILE")) << R"({"message": "reported before", "timestamp": 5})";
  std::abort();
}

void crash_in_many_threads() {
  std::thread threads[8];
  for (std::thread& thread : threads) thread = std::thread([] { throw NoSuchShard("thread"); });
  for (std::thread& thread : threads) thread.join();
}

void previous_handler(int, siginfo_t* info, void*) {
  std::fprintf(stderr, "previous handler, address %p\n", info->si_addr);
  _exit(42);
}

void chain() {
  struct sigaction action {};
  action.sa_sigaction = previous_handler;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

volatile std::uintptr_t nowhere = 0x10;
volatile int seven = 7;
volatile int zero = 0;

const std::map<std::string, std::function<void()>> kFailures = {
    {"exception", [] { throw NoSuchShard("no shard \"7\"\nin \xff/data"); }},
    {"number", [] { throw 5; }},
    {"thread", [] { std::thread([] { throw NoSuchShard("in a thread"); }).join(); }},
    {"long", [] { throw NoSuchShard(long_text("")); }},
    {"longer", [] { throw NoSuchShard(long_text("x")); }},
    {"threads", crash_in_many_threads},
    {"noexcept", []() noexcept { look_up("in a noexcept function"); }},
    {"not_joined", [] { std::thread running([] { pause(); }); }},
    {"abort", [] { std::abort(); }},
    {"segv", [] { *reinterpret_cast<volatile int*>(nowhere) = 1; }},
    {"chain", [] { *reinterpret_cast<volatile int*>(nowhere) = 1; }},
    {"overflow", [] { std::printf("%d", overflow(0)); }},
    {"bus", read_behind_the_end_of_a_file},
    {"fpe", [] { std::printf("%d", divide(seven, zero)); }},
    {"ill", [] { __builtin_trap(); }},
    {"sent", [] { kill(getpid(), SIGBUS); }},
    {"child", crash_in_a_child},
    {"reported", write_error_file_first},
    {"exit", [] { std::exit(9); }},
};

}  // namespace

int main(int count, char** arguments) {
  const std::string how = count > 1 ? arguments[1] : "";
  if (how == "chain") chain();
  if (count <= 2) {  // with one more argument: as if the library were not there
    ddp::install_failure_handlers();
    ddp::install_failure_handlers();  // twice is once
  }
  const char* rank = std::getenv("RANK");
  if (rank != nullptr && std::string(rank) != "1") pause();  // until the launcher ends us
  kFailures.at(how)();
}
