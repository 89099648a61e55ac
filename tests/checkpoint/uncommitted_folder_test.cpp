#include "checkpoint/folders/uncommitted_folder.h"

#include <string>

#include "checkpoint/folders/sharded_folder.h"
#include "checkpoint/storage/damage.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace ddp {

TEST_CASE("UncommittedFolder: one with a file that only checkpoints have needs a manifest") {
  const test::TemporaryFolder folder;
  storage::FileSystem file_system;
  for (const std::string name : {"block-checksums.txt", "trainer.json", "ranks.safetensors"}) {
    const auto path = folder / ("of-" + name);
    std::filesystem::create_directory(path);
    for (const auto* file : {"model-00001-of-00001.safetensors", "config.json", "optim.safetensors"}) {
      test::write_file(path / file, "x");
    }
    CHECK_NOTHROW(refuse_uncommitted(path));
    CHECK(is_sharded_folder(file_system, path));
    test::write_file(path / name, "x");
    for (const bool as_loaded : {false, true}) {
      const auto error = test::error_of<storage::DamagedCheckpoint>(
          [&] { as_loaded ? static_cast<void>(is_sharded_folder(file_system, path)) : refuse_uncommitted(path); });
      CHECK_THAT(error, Catch::Matchers::ContainsSubstring("it has " + name + ", but no MANIFEST.json"));
    }
    test::write_file(path / "MANIFEST.json", "x");
    CHECK_NOTHROW(refuse_uncommitted(path));
  }
  CHECK_NOTHROW(refuse_uncommitted(folder / "none"));
}

}  // namespace ddp
