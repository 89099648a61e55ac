// Runs a fuzz target without libFuzzer: its seeds and mutations of them, the same ones every time. Each of the two
// outcomes must come up, or the target tests only one side of the code.
//
//     fuzz_driver_TARGET --rounds N [--lenient] [--memory M]   DDPRUN_FUZZ_ROUNDS overrules N; --lenient: hardly
//                                                 anything is refused; --memory: MiB that an input may make it take
//     fuzz_driver_TARGET --round N                the one that failed
//     fuzz_driver_TARGET --seeds FOLDER           writes the seeds as files, for libFuzzer
//     fuzz_driver_TARGET --dictionary FILE        writes the dictionary as libFuzzer reads it
//
// The files in the folder that DDPRUN_FUZZ_SEEDS names are seeds as well (tests/data/fuzz/fetch_pictures.py gets some).
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/fuzz/fuzz.h"

// Sanitizers count memory themselves, and reserve more.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define DDPRUN_COUNTS_MEMORY
#include <malloc.h>
#endif

namespace {

std::atomic<std::size_t> used_bytes = 0;
std::atomic<std::size_t> peak_bytes = 0;

#ifdef DDPRUN_COUNTS_MEMORY
void count(std::size_t added) {
  const std::size_t used = used_bytes.fetch_add(added) + added;
  std::size_t peak = peak_bytes;
  while (used > peak && !peak_bytes.compare_exchange_weak(peak, used)) {
  }
}
#endif

}  // namespace

#ifdef DDPRUN_COUNTS_MEMORY
// glibc's functions under other names; these stand in their place for the C libraries as well.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void __libc_free(void* memory);

void* malloc(std::size_t size) {
  void* memory = __libc_malloc(size);
  count(malloc_usable_size(memory));
  return memory;
}
void* calloc(std::size_t number, std::size_t size) {
  void* memory = __libc_calloc(number, size);
  count(malloc_usable_size(memory));
  return memory;
}
void* realloc(void* memory, std::size_t size) {
  const std::size_t before = malloc_usable_size(memory);
  void* moved = __libc_realloc(memory, size);
  if (moved != nullptr || size == 0) used_bytes -= before;
  if (moved != nullptr) count(malloc_usable_size(moved));
  return moved;
}
void free(void* memory) {
  used_bytes -= malloc_usable_size(memory);
  __libc_free(memory);
}
}
#endif

// For targets that have none.
__attribute__((weak)) std::vector<std::string> fuzz::dictionary() {
  return {};
}
__attribute__((weak)) std::string fuzz::seed_of_file(const std::string& content) {
  return content;
}

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

// Over what begins like the word, so that a number with a name gets another value; else at `at`.
void put_word(const std::string& word, std::size_t at, std::string& bytes) {
  const std::size_t found = bytes.find(word.substr(0, fuzz::kWordName));
  if (found != std::string::npos && word.size() > fuzz::kWordName) at = found;
  bytes.replace(at, std::min(word.size(), bytes.size() - at), word);
}

// Flips, removes, repeats, inserts, and crosses with another seed. Half of it near the front, where headers are.
std::string mutate(Random& random, std::string bytes, const std::vector<std::string>& seeds,
                   const std::vector<std::string>& words) {
  constexpr std::size_t kFront = 64;
  for (std::size_t i = 1 + below(random, 1 + below(random, 5)); i > 0; --i) {
    const std::size_t range = below(random, 2) == 0 ? bytes.size() : std::min(bytes.size(), kFront);
    const std::size_t at = below(random, range + 1);
    const std::string& other = seeds[below(random, seeds.size())];
    switch (below(random, words.empty() ? 8 : 10)) {
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
      case 7:
        if (at < bytes.size()) bytes[at] = static_cast<char>(1U << below(random, 8));
        break;
      default:
        put_word(words[below(random, words.size())], at, bytes);
        break;
    }
  }
  return bytes;
}

struct Plan {
  std::vector<std::string> seeds{};
  std::vector<std::string> words{};
  std::size_t most_bytes = 0;  // that an input may make the target take; 0: any
};

fuzz::Outcome run_round(int round, const Plan& plan) {
  current_round = round;
  const auto index = static_cast<std::size_t>(round);
  Random random(index);
  const std::vector<std::string>& seeds = plan.seeds;
  const std::string input =
      index < seeds.size() ? seeds[index] : mutate(random, seeds[below(random, seeds.size())], seeds, plan.words);
  const std::size_t before = used_bytes;
  peak_bytes = before;
  const fuzz::Outcome outcome = fuzz::run(input);
  if (plan.most_bytes > 0) fuzz::require(peak_bytes - before <= plan.most_bytes, "an input takes only so much memory");
  return outcome;
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
  constexpr rlim_t kMaxBytes = rlim_t{512} << 20;
  const rlimit limit{.rlim_cur = kMaxBytes, .rlim_max = kMaxBytes};
  setrlimit(RLIMIT_AS, &limit);
#endif
}

void write_seeds(const std::filesystem::path& folder, const std::vector<std::string>& seeds) {
  std::filesystem::create_directories(folder);
  for (std::size_t i = 0; i < seeds.size(); ++i)
    std::ofstream(folder / ("seed_" + std::to_string(i)), std::ios::binary) << seeds[i];
}

void write_dictionary(const std::filesystem::path& file, const std::vector<std::string>& words) {
  std::ofstream stream(file);
  for (const std::string& word : words) {
    stream << '"';
    for (const char c : word) {
      char code[5];
      std::snprintf(code, sizeof(code), "\\x%02x", static_cast<unsigned char>(c));
      stream << code;
    }
    stream << "\"\n";
  }
}

// In the order of their names, so that a round is the same every time.
void add_files(const std::filesystem::path& folder, std::vector<std::string>& seeds) {
  constexpr std::uintmax_t kMaxBytes = 1 << 16;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.file_size() <= kMaxBytes) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    seeds.push_back(fuzz::seed_of_file({std::istreambuf_iterator<char>(stream), {}}));
  }
}

// At least a hundredth of the inputs each.
int run_rounds(int rounds, bool is_lenient, const Plan& plan) {
  int accepted = 0;
  for (int round = 0; round < rounds; ++round) accepted += run_round(round, plan) == fuzz::Outcome::kAccepted ? 1 : 0;
  const int refused = rounds - accepted;
  std::printf("%d inputs, %d accepted, %d refused\n", rounds, accepted, refused);
  const bool is_balanced = accepted >= rounds / 100 && (is_lenient || refused >= rounds / 100);
  if (!is_balanced) std::fprintf(stderr, "expected at least a hundredth of both kinds\n");
  return is_balanced ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  Plan plan{.seeds = fuzz::seeds(), .words = fuzz::dictionary()};
  const std::string what = count >= 3 ? arguments[1] : "";
  if (what == "--seeds") {
    write_seeds(arguments[2], plan.seeds);
    return 0;
  }
  if (what == "--dictionary") {
    write_dictionary(arguments[2], plan.words);
    return 0;
  }
  if (const char* folder = std::getenv("DDPRUN_FUZZ_SEEDS")) add_files(folder, plan.seeds);
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, say_round);
  limit_memory();
  bool is_lenient = false;
  for (int i = 3; i < count; ++i) {
    is_lenient = is_lenient || std::string_view(arguments[i]) == "--lenient";
    const bool has_value = i + 1 < count && std::string_view(arguments[i]) == "--memory";
    if (has_value) plan.most_bytes = static_cast<std::size_t>(std::atoi(arguments[i + 1])) << 20;
  }
#ifndef DDPRUN_COUNTS_MEMORY
  plan.most_bytes = 0;
#endif
  if (what == "--round") {
    run_round(std::atoi(arguments[2]), plan);
    return 0;
  }
  const char* asked = std::getenv("DDPRUN_FUZZ_ROUNDS");
  return run_rounds(asked != nullptr     ? std::atoi(asked)
                    : what == "--rounds" ? std::atoi(arguments[2])
                                         : 1000,
                    is_lenient, plan);
}
