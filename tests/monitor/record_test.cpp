#include "monitor/wire/record.h"

#include <stdexcept>

#include "tests/monitor/event_files.h"
#include "tests/support/catch.h"

namespace ddp::wire {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

TEST_CASE("Record: the mask rotates by 15 and adds") {
  CHECK(masked_crc32c("") == 0xA282EAD8U);
  CHECK(masked_crc32c("123456789") == ((0xE3069283U >> 15) | (0xE3069283U << 17)) + 0xA282EAD8U);
}

TEST_CASE("Record: is length checksum payload checksum") {
  std::string record;
  append_record(record, "123456789");
  CHECK(record.size() == 9 + kRecordOverhead);
  CHECK(record.substr(0, 8) == std::string("\x09\0\0\0\0\0\0\0", 8));
  CHECK(record.substr(12, 9) == "123456789");
  // masked(0xE3069283) = rotr15 + 0xA282EAD8 = 0xC78AB0E5
  CHECK(record.substr(21) == "\xE5\xB0\x8A\xC7");
}

TEST_CASE("Record: reads back every payload and stops before one that is not whole") {
  const test::TemporaryFolder folder;
  const fs::path file = folder.path() / "records";
  const std::vector<std::string> payloads = {"", "a", std::string(100'000, 'x'), std::string("\0\xFF", 2)};
  std::string content;
  for (const std::string& payload : payloads) append_record(content, payload);
  test::write_file(file, content);
  CHECK(test::records_of(file) == payloads);
  for (size_t cut = 1; cut < 18; ++cut) {
    test::write_file(file, content.substr(0, content.size() - cut));
    INFO(cut << " bytes missing");
    CHECK(test::records_of(file).size() == 3U);
  }
  test::write_file(file, content + "torn");
  RecordReader reader(file);
  while (reader.next()) {
  }
  CHECK(reader.incomplete_bytes() == 4U);
}

TEST_CASE("Record: damage is named with file and place") {
  const test::TemporaryFolder folder;
  const fs::path file = folder.path() / "records";
  std::string content;
  append_record(content, "first");
  append_record(content, "second");
  std::string damaged = content;
  damaged[21 + 12] ^= 1;
  test::write_file(file, damaged);
  CHECK_THROWS_MATCHES(test::records_of(file), std::runtime_error,
                       MessageMatches(ContainsSubstring(file.string() + ": record at byte 21")));
  damaged = content;
  damaged[0] ^= 1;
  test::write_file(file, damaged);
  CHECK_THROWS_MATCHES(test::records_of(file), std::runtime_error,
                       MessageMatches(ContainsSubstring("checksum of the length")));
}

TEST_CASE("Record: a length with a right checksum that exceeds the file allocates nothing") {
  const test::TemporaryFolder folder;
  std::string content;
  append_record(content, "");
  // 2^62 bytes, with the checksum that belongs to it.
  const std::string length = std::string("\0\0\0\0\0\0\0\x40", 8);
  std::string framed;
  append_record(framed, length);
  content += length + framed.substr(framed.size() - 4) + "abcdefgh";
  test::write_file(folder.path() / "records", content);
  CHECK(test::records_of(folder.path() / "records").size() == 1U);
}

TEST_CASE("Record: a folder or a missing file is refused") {
  const test::TemporaryFolder folder;
  CHECK_THROWS_AS(RecordReader(folder.path()), std::runtime_error);
  CHECK_THROWS_AS(RecordReader(folder.path() / "none"), std::runtime_error);
}

}  // namespace
}  // namespace ddp::wire
