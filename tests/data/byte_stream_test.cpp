// The bytes of archives against zlib's gzread(): members, cuts, damage, bytes after the data, and reads of any size.
// DDPRUN_STREAMS is how many files are drawn at random (400), DDPRUN_STREAM_SEED from which seed on.
#include "data/formats/byte_stream.h"

#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <ddprun/data/byte_source.h>

#include "tests/data/gzip.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Random = std::mt19937_64;

size_t up_to(Random& random, size_t most) {
  return static_cast<size_t>(random() % (most + 1));
}

template <typename Value>
Value one_of(Random& random, const std::vector<Value>& values) {
  return values[up_to(random, values.size() - 1)];
}

/// Bytes that compress well, or not at all.
std::string content(Random& random) {
  std::string bytes(one_of<size_t>(random, {0, 1, 2, 100, 5000, 300'000, 900'000}), 'a');
  if (random() % 2 == 0) {
    for (char& byte : bytes) byte = static_cast<char>(random());
  }
  return bytes;
}

/// gzip data of several members, or plain bytes; often cut, damaged, or with bytes after it.
std::string file_of(Random& random) {
  std::string file;
  if (random() % 8 == 0) {
    file = content(random);
  } else {
    for (size_t members = 1 + up_to(random, 3); members > 0; --members) file += test::gzip(content(random));
  }
  static const std::vector<std::string> kEnds = {"",     "",     "",         std::string(700, '\0'), "x",
                                                 "\x1f", "\x1f", "\x1f\x8b", "\x1f\x8b\x08"};
  file += one_of(random, kEnds);
  const auto what = random() % 4;
  if (what == 0) file.resize(up_to(random, file.size()));
  if (what == 1 && !file.empty()) file[up_to(random, file.size() - 1)] ^= static_cast<char>(1 << up_to(random, 7));
  return file;
}

struct Outcome {
  std::string bytes{};
  bool is_damaged = false;
};

/// In one read of more than there is: gzread() does not notice that data is truncated where it was asked for as many
/// bytes as the data made.
Outcome by_zlib(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(::gzopen(path.c_str(), "rb"), ::gzclose);
  Outcome found;
  found.bytes.resize(size_t{5} << 20);
  const int count = ::gzread(file.get(), found.bytes.data(), static_cast<unsigned>(found.bytes.size()));
  int error = Z_OK;
  ::gzerror(file.get(), &error);
  found.is_damaged = count < 0 || error == Z_BUF_ERROR;
  found.bytes.resize(static_cast<size_t>(std::max(count, 0)));
  return found;
}

/// In reads of random sizes.
Outcome by_stream(Random& random, const std::string& url) {
  ByteStream stream(url);
  Outcome found;
  try {
    while (true) {
      std::vector<uint8_t> piece(1 + up_to(random, one_of<size_t>(random, {1, 511, 70'000, 700'000})));
      const size_t count = stream.read(piece);
      found.bytes.append(piece.begin(), piece.begin() + static_cast<int64_t>(count));
      CHECK(stream.position() == found.bytes.size());
      if (count == 0) return found;
    }
  } catch (const DataError&) {
    found.is_damaged = true;
    return found;
  }
}

/// After passing over some of them.
std::string rest_by_stream(const std::string& url, size_t passed_over) {
  ByteStream stream(url);
  stream.skip(passed_over);
  std::vector<uint8_t> bytes(size_t{5} << 20);
  const size_t count = stream.read(bytes);
  return {bytes.begin(), bytes.begin() + static_cast<int64_t>(count)};
}

TEST_CASE("ByteStream: gives what zlib's gzread() gives, whatever the file is and however it is read") {
  const char* const asked = std::getenv("DDPRUN_STREAMS");
  const char* const first = std::getenv("DDPRUN_STREAM_SEED");
  const int count = asked != nullptr ? std::atoi(asked) : 400;
  const uint64_t begin = first != nullptr ? std::strtoull(first, nullptr, 10) : 0;
  const test::TemporaryFolder folder;
  const std::string path = folder / "x";
  int damaged = 0;
  for (uint64_t seed = begin; seed < begin + static_cast<uint64_t>(count); ++seed) {
    Random random(seed);
    test::write_file(path, file_of(random));
    const Outcome expected = by_zlib(path);
    damaged += expected.is_damaged ? 1 : 0;
    // Pieces of a pipe end anywhere in the data.
    const std::string command = one_of<std::string>(random, {"cat", "dd bs=1 count=1 status=none; cat", "dd bs=777"});
    for (const std::string& url : {path, "pipe:(" + command + ") 2>/dev/null < " + path}) {
      INFO("seed " << seed << ", " << url);
      const Outcome found = by_stream(random, url);
      CHECK(found.is_damaged == expected.is_damaged);
      // How much comes before an error depends on the sizes of the reads.
      if (!expected.is_damaged) {
        CHECK((found.bytes == expected.bytes));
        const size_t passed_over = up_to(random, expected.bytes.size());
        CHECK((rest_by_stream(url, passed_over) == expected.bytes.substr(passed_over)));
      }
      const size_t both = std::min(found.bytes.size(), expected.bytes.size());
      CHECK((found.bytes.substr(0, both) == expected.bytes.substr(0, both)));
    }
  }
  if (count >= 400) CHECK(damaged > count / 10);
  if (count >= 400) CHECK(damaged < count);
}

}  // namespace
}  // namespace ddp
