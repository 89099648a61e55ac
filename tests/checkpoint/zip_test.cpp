
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/pt/crc32.h"
#include "checkpoint/pt/zip_reader.h"
#include "checkpoint/pt/zip_records.h"
#include "checkpoint/pt/zip_writer.h"
#include "tests/checkpoint/text_sink.h"
#include "tests/checkpoint/zip_forms.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"

namespace ddp::pt {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::error_of;
using test::TextSink;

std::string example_archive() {
  TextSink sink;
  ZipWriter writer(sink);
  writer.add("archive/data.pkl", "a pickle");
  writer.add("archive/data/0", std::string(200, 'x'));
  writer.add("archive/data/1", "");
  writer.add("archive/version", "3\n");
  writer.finish();
  return sink.text;
}

void read_all(const std::string& file) {
  ZipReader(file).verify();
}

TEST_CASE("Zip: entries come back aligned to sixty four bytes") {
  const auto file = example_archive();
  const ZipReader reader(file);
  reader.verify();
  REQUIRE(reader.entries().size() == 4);
  CHECK(reader.find("archive/data.pkl")->data == "a pickle");
  CHECK(reader.find("archive/data/0")->data == std::string(200, 'x'));
  CHECK(reader.find("archive/data/1")->data == "");
  CHECK(reader.find("archive/data/2") == nullptr);
  for (const auto& entry : reader.entries()) {
    INFO(entry.name);
    CHECK((entry.data.data() - file.data()) % 64 == 0);
  }
}

TEST_CASE("Zip: the checksum is the usual one") {
  CHECK(crc32("123456789", 9) == 0xcbf43926U);
  std::mt19937_64 random(7);
  std::string bytes(1000, '\0');
  for (auto& byte : bytes) byte = static_cast<char>(random());
  for (size_t size = 0; size < 700; ++size) {
    const auto before = static_cast<uint32_t>(random());
    const auto* data = bytes.data() + random() % 300;
    INFO(size);
    REQUIRE(crc32(data, size, before) == crc32_portable(data, size, before));
  }
}

TEST_CASE("Zip: every changed byte of a file is noticed") {
  const auto file = example_archive();
  for (size_t i = 0; i < file.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      auto changed = file;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      INFO("bit " << bit << " of byte " << i);
      CHECK_THROWS_AS(read_all(changed), FormatError);
    }
  }
}

TEST_CASE("Zip: every cut and every extension is noticed") {
  const auto file = example_archive();
  for (size_t size = 0; size < file.size(); ++size) {
    INFO(size);
    CHECK_THROWS_AS(read_all(file.substr(0, size)), FormatError);
    CHECK_THROWS_AS(read_all(file + file.substr(0, size + 1)), FormatError);
    CHECK_THROWS_AS(read_all(file.substr(0, size) + "x" + file.substr(size)), FormatError);
  }
}

TEST_CASE("Zip: random damage is handled") {
  const auto file = example_archive();
  std::mt19937_64 random(3);
  for (int round = 0; round < 20'000; ++round) {
    auto changed = file;
    for (auto edits = 1 + random() % 4; edits > 0; --edits) {
      const auto at = random() % changed.size();
      switch (random() % 3) {
        case 0:
          changed[at] = static_cast<char>(random());
          break;
        case 1:
          changed.erase(at, 1 + random() % 20);
          break;
        default:
          changed.insert(at, file.substr(random() % file.size(), 1 + random() % 60));
      }
      if (changed.empty()) changed.assign(1, 'P');
    }
    if (changed == file) continue;
    CHECK_THROWS_AS(read_all(changed), FormatError);
  }
}

TEST_CASE("Zip: compressed encrypted and repeated entries are refused by name") {
  auto file = example_archive();
  const auto set = [&](size_t offset, char value) {
    auto changed = file;
    changed[offset] = value;
    const auto directory = changed.find("PK\1\2");
    changed[directory + 2 + offset] = value;
    return error_of([&] { read_all(changed); });
  };
  CHECK_THAT(set(8, 12), ContainsSubstring("compressed in a way that torch.load does not read"));
  CHECK_THAT(set(8, 8), ContainsSubstring("compressed entry of the zip file is damaged"));
  CHECK_THAT(set(6, 1), ContainsSubstring("encrypted"));
  for (auto at = file.find("data/1"); at != std::string::npos; at = file.find("data/1", at + 1)) file[at + 5] = '0';
  CHECK_THROWS_WITH(read_all(file), ContainsSubstring("two entries named 'archive/data/0'"));
}

std::string torch_example(bool has_checksums) {
  TextSink sink;
  test::TorchZip zip(sink, has_checksums);
  zip.add("archive/data.pkl", "a pickle");
  zip.add("archive/data/0", std::string(200, 'x'));
  zip.add("archive/data/1", "");
  zip.finish();
  return sink.text;
}

TEST_CASE("Zip: every changed bit of torch's own layout is noticed") {
  const auto file = torch_example(true);
  CHECK(ZipReader(file).has_checksums());
  read_all(file);
  for (size_t i = 0; i < file.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      auto changed = file;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      INFO("bit " << bit << " of byte " << i);
      CHECK_THROWS_AS(read_all(changed), FormatError);
    }
  }
}

TEST_CASE("Zip: a file without checksums is read and only its data is unguarded") {
  const auto file = torch_example(false);
  read_all(file);
  const ZipReader reader(file);
  CHECK_FALSE(reader.has_checksums());
  const auto is_data = [&](size_t i) {
    return std::any_of(reader.entries().begin(), reader.entries().end(), [&](const auto& entry) {
      const auto begin = static_cast<size_t>(entry.data.data() - file.data());
      return i >= begin && i < begin + entry.data.size();
    });
  };
  for (size_t i = 0; i < file.size(); ++i) {
    if (is_data(i)) continue;
    auto changed = file;
    changed[i] = static_cast<char>(changed[i] ^ (1 << i % 8));
    INFO("byte " << i);
    CHECK_THROWS_AS(read_all(changed), FormatError);
  }
}

const std::string kUnixExtra("UT\5\0\3timeux\x0b\0\1\4\0\0\0\0\4\0\0\0\0", 24);
// A thousand times the letter a.
const std::string kPackedLetters("KL\x1c\x05\xa3`\x14\x0cw\0\0", 11);

std::vector<test::ArchiveEntry> archived() {
  return {
      {.name = "run/"},
      {.name = "run/data.pkl", .data = "a pickle", .deflated = test::deflate_block("a pickle"), .extra = kUnixExtra},
      {.name = "run/data/0", .data = std::string(1000, 'a'), .deflated = kPackedLetters, .has_descriptor = true},
      {.name = "run/data/1", .data = "stored", .has_descriptor = true, .is_wide = true},
      {.name = "run/version", .data = "3\n", .extra = std::string("\x34\x12\3\0abc", 7)}};
}

TEST_CASE("Zip: what archivers pack anew is read") {
  for (const bool is_reversed : {false, true}) {
    for (const auto* comment : {"", "packed\nby hand"}) {
      const auto file = test::archive(archived(), is_reversed, comment);
      const ZipReader reader(file);
      reader.verify();
      CHECK(reader.has_checksums());
      CHECK(unpack(*reader.find("run/data.pkl")) == "a pickle");
      CHECK(unpack(*reader.find("run/data/0")) == std::string(1000, 'a'));
      CHECK(reader.find("run/data/1")->data == "stored");
    }
  }
}

TEST_CASE("Zip: damage of an archived entrys data or sizes is noticed") {
  const auto file = test::archive(archived());
  const ZipReader original(file);
  for (size_t i = 0; i < file.size(); ++i) {
    auto changed = file;
    changed[i] = static_cast<char>(changed[i] ^ (1 << i % 8));
    try {
      const ZipReader reader(changed);
      reader.verify();
      REQUIRE(reader.entries().size() == original.entries().size());
      for (size_t each = 0; each < reader.entries().size(); ++each) {
        const auto contents = [](const ZipEntry& entry) {
          return entry.is_deflated ? unpack(entry) : std::string(entry.data);
        };
        INFO("byte " << i);
        CHECK(reader.entries()[each].name == original.entries()[each].name);
        CHECK(contents(reader.entries()[each]) == contents(original.entries()[each]));
      }
    } catch (const FormatError&) {
    }
  }
}

TEST_CASE("Zip: an entry that would unpack to more than it says is refused") {
  auto entries = archived();
  entries[2].data.pop_back();
  CHECK_THROWS_WITH(read_all(test::archive(entries)), ContainsSubstring("damaged"));
  entries[2].data.assign(2000, 'a');
  CHECK_THROWS_WITH(read_all(test::archive(entries)), ContainsSubstring("damaged"));
  entries[2].data.assign(20'000, 'a');  // more than eleven bytes can stand for
  CHECK_THROWS_WITH([&] { ZipReader reader(test::archive(entries)); }(), ContainsSubstring("directory is damaged"));
}

TEST_CASE("Zip: bytes between entries belong to one") {
  auto file = test::archive({{.name = "a/data.pkl", .data = "x"}, {.name = "a/data/0", .data = "y"}});
  CHECK_THROWS_WITH(read_all(file.insert(file.find("PK\1\2"), "gap")), ContainsSubstring("end is damaged"));
}

// Accepts bytes without keeping them, but for the last ones.
class CountingSink : public storage::ByteSink {
 public:
  void write(const void* data, size_t size) override {
    total += size;
    if (size < 4096) last.append(static_cast<const char*>(data), size);
  }
  uint64_t total = 0;
  std::string last;
};

TEST_CASE("Zip: sizes beyond four gigabytes are written as ZIP64") {
  CountingSink sink;
  ZipWriter writer(sink);
  const std::string piece(size_t{1} << 20, 'x');
  const uint64_t size = uint64_t{5} << 30;
  writer.add("archive/data/0", size, 0x1234, [&](storage::ByteSink& out) {
    for (uint64_t i = 0; i < size / piece.size(); ++i) out.write(piece.data(), piece.size());
  });
  writer.add("archive/version", "3\n");
  writer.finish();
  const auto end = sink.last.substr(sink.last.size() - zip::kEndBytes - zip::kLocator64Bytes - zip::kEnd64Bytes);
  CHECK(end.starts_with("PK\6\6"));
  uint64_t directory = 0;
  std::memcpy(&directory, end.data() + 48, 8);
  CHECK(directory > size);
  CHECK(directory < sink.total);
}

}  // namespace
}  // namespace ddp::pt
