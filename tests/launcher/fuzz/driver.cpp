// Runs a fuzz target without libFuzzer: its seeds and mutations of them, the same ones every time.
//
//     fuzz_driver_TARGET --rounds N        DDPRUN_FUZZ_ROUNDS overrules N
//     fuzz_driver_TARGET --round N         the one that failed
//     fuzz_driver_TARGET --seeds FOLDER    writes the seeds as files, for libFuzzer
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/launcher/fuzz/fuzz.h"

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

// Flips, removes, repeats, inserts, and crosses with another seed.
std::string mutate(Random& random, std::string bytes, const std::vector<std::string>& seeds) {
  for (std::size_t i = below(random, 6); i > 0; --i) {
    const std::size_t at = below(random, bytes.size() + 1);
    switch (below(random, 6)) {
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
      case 4: {
        const std::string& other = seeds[below(random, seeds.size())];
        bytes = bytes.substr(0, at) + other.substr(below(random, other.size() + 1));
        break;
      }
      default:
        if (at < bytes.size()) bytes[at] = static_cast<char>(1U << below(random, 8));
        break;
    }
  }
  return bytes;
}

void run_round(int round, const std::vector<std::string>& seeds) {
  current_round = round;
  const auto index = static_cast<std::size_t>(round);
  Random random(index);
  const std::string input =
      index < seeds.size() ? seeds[index] : mutate(random, seeds[below(random, seeds.size())], seeds);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

void say_round(int number) {
  char text[64] = "failed in round ";
  char* end = std::to_chars(text + 16, text + 40, static_cast<int>(current_round)).ptr;
  *end++ = '\n';
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, static_cast<std::size_t>(end - text));
  signal(number, SIG_DFL);
  raise(number);
}

void write_seeds(const std::filesystem::path& folder, const std::vector<std::string>& seeds) {
  std::filesystem::create_directories(folder);
  for (std::size_t i = 0; i < seeds.size(); ++i)
    std::ofstream(folder / ("seed_" + std::to_string(i)), std::ios::binary) << seeds[i];
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> seeds = launcher::fuzz::seeds();
  const std::string what = count == 3 ? arguments[1] : "";
  if (what == "--seeds") {
    write_seeds(arguments[2], seeds);
    return 0;
  }
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, say_round);
  if (what == "--round") {
    run_round(std::atoi(arguments[2]), seeds);
    return 0;
  }
  const char* asked = std::getenv("DDPRUN_FUZZ_ROUNDS");
  const int rounds = asked != nullptr ? std::atoi(asked) : what == "--rounds" ? std::atoi(arguments[2]) : 1000;
  for (int round = 0; round < rounds; ++round) run_round(round, seeds);
  std::printf("%d inputs\n", rounds);
}
