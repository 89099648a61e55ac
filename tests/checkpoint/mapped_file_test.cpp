#include "ddprun/detail/checkpoint/storage/mapped_file.h"

#include <string>
#include <system_error>
#include <utility>

#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace ddp::storage {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::TemporaryFolder;

TEST_CASE("MappedFile: writes to the memory never reach the file, nor another mapping") {
  const TemporaryFolder folder;
  FileSystem files;
  test::write_file(folder / "file", "text");
  const auto mapped = map_file(files, folder / "file");
  const_cast<char*>(mapped.view.data())[0] = 'T';
  CHECK(mapped.view == "Text");
  CHECK(map_file(files, folder / "file").view == "text");
  CHECK(test::read_file(folder / "file") == "text");
}

TEST_CASE("MappedFile: the bytes stay when the file is replaced or removed") {
  const TemporaryFolder folder;
  FileSystem files;
  test::write_file(folder / "file", "old");
  test::write_file(folder / "new", "new");
  const auto mapped = map_file(files, folder / "file");
  files.rename(folder / "new", folder / "file");
  CHECK(mapped.view == "old");
  const auto second = map_file(files, folder / "file");
  files.remove(folder / "file");
  CHECK(second.view == "new");
}

TEST_CASE("MappedFile: the last copy of the owner keeps the bytes") {
  const TemporaryFolder folder;
  FileSystem files;
  test::write_file(folder / "file", std::string(10'000, 'x') + "end");
  Bytes copy;
  {
    auto file = files.open(folder / "file");
    const auto mapped = map_file(files, file, folder / "file");
    copy = mapped;
  }
  CHECK(copy.view.substr(10'000) == "end");
  const auto moved = std::move(copy);
  CHECK(moved.view.size() == 10'003);
}

TEST_CASE("MappedFile: an empty file has no bytes and is not an error") {
  const TemporaryFolder folder;
  FileSystem files;
  test::write_file(folder / "file", "");
  CHECK(map_file(files, folder / "file").view.empty());
}

TEST_CASE("MappedFile: what is no file is named") {
  const TemporaryFolder folder;
  FileSystem files;
  CHECK_THROWS_WITH(map_file(files, folder.path()), ContainsSubstring("expected a regular file"));
  CHECK_THROWS_WITH(map_file(files, folder / "none"), ContainsSubstring((folder / "none").string()));
}

TEST_CASE("MappedFile: bytes of one's own have one home, however short the text") {
  // A short string lives inside its object: a view of one that moved would dangle.
  for (const auto& text : {std::string(), std::string("short"), std::string(1000, 'x')}) {
    const auto bytes = own_bytes(text);
    const auto copy = bytes;
    CHECK(copy.view == text);
    CHECK(copy.view.data() == bytes.view.data());
  }
}

}  // namespace
}  // namespace ddp::storage
