#include "checkpoint/pt/legacy_file.h"

#include <string>

#include "checkpoint/pt/pt_file.h"
#include "tests/checkpoint/legacy_forms.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"

namespace ddp::pt {
namespace {

using namespace std::string_literals;
using Catch::Matchers::ContainsSubstring;
using test::error_of;

std::string_view legacy_bytes(const PtFile& file, const std::string& name) {
  return file.bytes_of(file.root().find(name)->tensor());
}

PtFile open(const std::string& bytes) {
  return {storage::own_bytes(bytes), "old.pt"};
}

TEST_CASE("LegacyFile: tensors find their storages") {
  const auto file = open(test::legacy_file());
  CHECK_FALSE(file.has_checksums());
  CHECK(legacy_bytes(file, "a") == "aaaabbbbcccc");
  CHECK(legacy_bytes(file, "tied") == "bbbb");
  UNSCOPED_INFO("a view of a storage, as files of PyTorch 0.3 have");
  CHECK(legacy_bytes(file, "view") == "cccc");
  CHECK(legacy_bytes(file, "b") == "xy");
}

TEST_CASE("LegacyFile: every cut and every extension is noticed") {
  const auto file = test::legacy_file();
  for (size_t size = 0; size < file.size(); ++size) {
    INFO(size);
    CHECK_THROWS_AS(open(file.substr(0, size)), std::runtime_error);
  }
  CHECK_THROWS_WITH(open(file + "x"), ContainsSubstring("other bytes follow its end"));
}

TEST_CASE("LegacyFile: sizes that contradict the pickle are refused") {
  auto file = test::legacy_file();
  const auto at = file.rfind("\3\0\0\0\0\0\0\0aaaa"s);
  file[at] = 2;
  CHECK_THROWS_WITH(open(file), ContainsSubstring("has 2 elements where the pickle says 3"));
  file[at] = 3;
  file[at + 7] = '\x7f';
  CHECK_THROWS_WITH(open(file), ContainsSubstring("has 9151314442816847875 elements"));
}

TEST_CASE("LegacyFile: what comes before the pickle is checked") {
  auto file = test::legacy_file();
  file[18] = 7;
  CHECK_THROWS_WITH(open(file), ContainsSubstring("protocol version is unknown"));
}

TEST_CASE("LegacyFile: a file that was pickled with protocols 3 to 5 is read as well, and with no other") {
  auto file = test::legacy_file();
  for (size_t at = 0; (at = file.find("\x80\2"s, at)) != std::string::npos;) file[at + 1] = 3;
  CHECK(looks_like_pt(file));
  CHECK(legacy_bytes(open(file), "tied") == "bbbb");
  for (char protocol = 4; protocol <= 6; ++protocol) {
    auto framed = file;
    framed[1] = protocol;
    CHECK_FALSE(looks_like_pt(framed));  // without its frame
    framed.insert(2, "\x95\x0d\0\0\0\0\0\0\0"s);
    CHECK(looks_like_pt(framed) == (protocol <= 5));
    if (protocol <= 5) CHECK(legacy_bytes(open(framed), "tied") == "bbbb");
  }
}

TEST_CASE("LegacyFile: a tar archive is refused with a way out") {
  auto file = std::string(1024, '\0');
  file.replace(257, 5, "ustar");
  CHECK(looks_like_pt(file));
  CHECK_THROWS_WITH(open(file), ContainsSubstring("load it in Python"));
}

}  // namespace
}  // namespace ddp::pt
