// Runs a fuzz target without libFuzzer: its seeds and mutations of them, the same ones every time. Each of the two
// outcomes must come up, or the target tests only one side of the code.
//
//     fuzz_driver_TARGET --rounds N [--lenient]   DDPRUN_FUZZ_ROUNDS overrules N; --lenient: hardly anything is refused
//     fuzz_driver_TARGET --round N                the one that failed
//     fuzz_driver_TARGET --seeds FOLDER           writes the seeds as files, for libFuzzer
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/fuzz/fuzz.h"

namespace {

using Random = std::mt19937_64;

volatile sig_atomic_t current_round = 0;  // for the signal handler, which can be given nothing

std::size_t below(Random& random, std::size_t limit) {
  return limit == 0 ? 0 : random() % limit;
}

std::string random_bytes(Random& random, std::size_t limit) {
  std::string bytes(below(random, limit), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// Flips, removes, repeats, inserts, and crosses with another seed. Half of it near the front, where headers are.
std::string mutate(Random& random, std::string bytes, const std::vector<std::string>& seeds) {
  constexpr std::size_t kFront = 64;
  for (std::size_t i = 1 + below(random, 1 + below(random, 5)); i > 0; --i) {
    const std::size_t range = below(random, 2) == 0 ? bytes.size() : std::min(bytes.size(), kFront);
    const std::size_t at = below(random, range + 1);
    const std::string& other = seeds[below(random, seeds.size())];
    switch (below(random, 8)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes.erase(at, below(random, 9));
        break;
      case 2:
        bytes.insert(at, random_bytes(random, 9));
        break;
      case 3:
        bytes.insert(at, bytes.substr(below(random, bytes.size() + 1), below(random, 40)));
        break;
      case 4:
        bytes = bytes.substr(0, at) + other.substr(below(random, other.size() + 1));
        break;
      case 5:
        bytes.insert(at, other.substr(below(random, other.size() + 1), below(random, 20)));
        break;
      case 6:  // the greatest and the least numbers of every width
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), std::min(bytes.size() - at, below(random, 9)),
                    below(random, 2) == 0 ? '\xff' : '\0');
        break;
      default:
        if (at < bytes.size()) bytes[at] = static_cast<char>(1U << below(random, 8));
        break;
    }
  }
  return bytes;
}

fuzz::Outcome run_round(int round, const std::vector<std::string>& seeds) {
  current_round = round;
  const auto index = static_cast<std::size_t>(round);
  Random random(index);
  return fuzz::run(index < seeds.size() ? seeds[index] : mutate(random, seeds[below(random, seeds.size())], seeds));
}

void say_round(int number) {
  char text[64] = "failed in round ";
  char* end = std::to_chars(text + 16, text + 40, static_cast<int>(current_round)).ptr;
  *end++ = '\n';
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, static_cast<std::size_t>(end - text));
  signal(number, SIG_DFL);
  raise(number);
}

// Memory for what an input only claims is then an exception that nobody promised. Sanitizers reserve more for
// themselves.
void limit_memory() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
  constexpr rlim_t kMostBytes = rlim_t{512} << 20;
  const rlimit limit{.rlim_cur = kMostBytes, .rlim_max = kMostBytes};
  setrlimit(RLIMIT_AS, &limit);
#endif
}

void write_seeds(const std::filesystem::path& folder, const std::vector<std::string>& seeds) {
  std::filesystem::create_directories(folder);
  for (std::size_t i = 0; i < seeds.size(); ++i)
    std::ofstream(folder / ("seed_" + std::to_string(i)), std::ios::binary) << seeds[i];
}

// At least a hundredth of the inputs each.
int run_rounds(int rounds, bool is_lenient, const std::vector<std::string>& seeds) {
  int accepted = 0;
  for (int round = 0; round < rounds; ++round) accepted += run_round(round, seeds) == fuzz::Outcome::kAccepted ? 1 : 0;
  const int refused = rounds - accepted;
  std::printf("%d inputs, %d accepted, %d refused\n", rounds, accepted, refused);
  const bool is_balanced = accepted >= rounds / 100 && (is_lenient || refused >= rounds / 100);
  if (!is_balanced) std::fprintf(stderr, "expected at least a hundredth of both kinds\n");
  return is_balanced ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> seeds = fuzz::seeds();
  const std::string what = count >= 3 ? arguments[1] : "";
  if (what == "--seeds") {
    write_seeds(arguments[2], seeds);
    return 0;
  }
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, say_round);
  limit_memory();
  if (what == "--round") {
    run_round(std::atoi(arguments[2]), seeds);
    return 0;
  }
  const bool is_lenient = count == 4 && std::string_view(arguments[3]) == "--lenient";
  const char* asked = std::getenv("DDPRUN_FUZZ_ROUNDS");
  return run_rounds(asked != nullptr     ? std::atoi(asked)
                    : what == "--rounds" ? std::atoi(arguments[2])
                                         : 1000,
                    is_lenient, seeds);
}
