#include "comm/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace ddp::shm {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { reset(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }
  void reset() {
    if (number_ >= 0) close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

std::array<char, 32> make_token() {
  constexpr char kDigits[] = "0123456789abcdef";
  std::random_device random;
  std::array<char, 32> token{};
  for (char& digit : token) digit = kDigits[random() % 16];
  return token;
}

// A limit on file sizes would end the process instead of failing the call.
void check_file_limit(size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes) {
    throw std::runtime_error("the limit on the size of files, " + std::to_string(limit.rlim_cur) +
                             " bytes, is below the " + std::to_string(bytes) + " bytes of the ranks' shared memory");
  }
}

int open_memory(size_t bytes, size_t reserved) {
  check_file_limit(bytes);
  Descriptor descriptor(memfd_create("ddprun ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (descriptor.number() < 0) fail("cannot create shared memory (memfd_create)");
  if (ftruncate(descriptor.number(), static_cast<off_t>(bytes)) != 0) fail("cannot resize shared memory (ftruncate)");
  // What is missing is said now, not by a signal later.
  if (const int error = posix_fallocate(descriptor.number(), 0, static_cast<off_t>(reserved)); error != 0) {
    errno = error;
    fail("cannot reserve " + std::to_string(reserved) + " bytes of shared memory");
  }
  if (fcntl(descriptor.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    fail("shared memory cannot be sealed");
  }
  const int kept = dup(descriptor.number());
  if (kept < 0) fail("cannot duplicate the descriptor of shared memory");
  fcntl(kept, F_SETFD, FD_CLOEXEC);
  return kept;
}

}  // namespace

class Segment::Mapping {
 public:
  Mapping(int descriptor, size_t bytes) : descriptor_(descriptor), bytes_(bytes) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (data == MAP_FAILED) fail("shared memory cannot be mapped");
    data_ = static_cast<std::byte*>(data);
  }
  ~Mapping() { munmap(data_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_.number(); }
  void close_descriptor() { descriptor_.reset(); }

 private:
  Descriptor descriptor_;
  size_t bytes_;
  std::byte* data_ = nullptr;
};

Segment::Segment(std::shared_ptr<Mapping> mapping, int ranks)
    : mapping_(std::move(mapping)), ranks_(ranks), places_(static_cast<size_t>(ranks)), data_(mapping_->data()) {}

Segment Segment::create(int ranks) {
  const Places places(static_cast<size_t>(ranks));
  auto mapping = std::make_shared<Mapping>(open_memory(places.end, places.channels), places.end);
  auto* header = reinterpret_cast<Header*>(mapping->data());
  header->ranks = static_cast<uint64_t>(ranks);
  header->token = make_token();
  header->magic = kMagic;
  // Huge pages where the system offers them for shared memory.
  madvise(mapping->data() + places.slots, places.channels - places.slots, MADV_HUGEPAGE);
  return Segment(std::move(mapping), ranks);
}

Segment Segment::attach(const std::string& ticket) {
  int pid = 0;
  int number = 0;
  std::string token;
  std::istringstream(ticket) >> pid >> number >> token;
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(number);
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) fail("process " + std::to_string(pid) + "'s shared memory cannot be opened (" + path + ")");
  struct stat status {};
  const bool has_size = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
                        static_cast<size_t>(status.st_size) >= sizeof(Header);
  const auto bytes = has_size ? static_cast<size_t>(status.st_size) : sizeof(Header);
  auto mapping = std::make_shared<Mapping>(descriptor, bytes);
  const auto* header = reinterpret_cast<const Header*>(mapping->data());
  const bool is_it = has_size && header->magic == kMagic && Places(header->ranks).end == bytes &&
                     token == std::string(header->token.data(), header->token.size());
  if (!is_it)
    throw std::runtime_error(
        path + " is not the shared memory of these ranks: is the other rank on another host or in another container?");
  mapping->close_descriptor();
  const auto ranks = static_cast<int>(header->ranks);
  return Segment(std::move(mapping), ranks);
}

std::string Segment::ticket() const {
  const auto* header = reinterpret_cast<const Header*>(data_);
  return std::to_string(getpid()) + " " + std::to_string(mapping_->descriptor()) + " " +
         std::string(header->token.data(), header->token.size());
}

void Segment::forget_ticket() {
  mapping_->close_descriptor();
}

Channel& Segment::channel(int from, int to) const {
  return reinterpret_cast<Channel*>(data_ + places_.channels)[static_cast<size_t>(from) * ranks_ + to];
}

uint64_t start_time_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  constexpr int kSkippedFields = 19;  // fields 3 to 21
  for (int i = 0; i < kSkippedFields; ++i) fields >> skipped;
  uint64_t start = 0;
  fields >> start;
  return start;
}

}  // namespace ddp::shm
