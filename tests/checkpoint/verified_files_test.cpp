// What open_checkpoint() gives is one checkpoint, whole, whatever a writer does to its folder between any two of the
// reader's operations.
#include "checkpoint/storage/verified_files.h"

#include <cerrno>
#include <functional>
#include <string>

#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/inventory.h"
#include "checkpoint/storage/staged_folder.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace ddp::storage {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::error_of;
using test::FaultyFileSystem;
using test::TemporaryFolder;

void save(const std::filesystem::path& run, int64_t sequence, bool can_exchange = true) {
  FaultyFileSystem files;
  files.can_exchange(can_exchange);
  StagedFolder staged(files, run, 1);
  const auto text = "version " + std::to_string(sequence);
  for (const auto* name : {"a", "b", "c"}) {
    staged.write(name, [&](ByteSink& sink) { sink.write(text.data(), text.size()); });
  }
  staged.write("empty", [](ByteSink&) {});
  staged.commit({.sequence = sequence});
}

bool is_one_version(const VerifiedFiles& opened) {
  const auto expected = "version " + std::to_string(opened.manifest.sequence);
  return opened.files.size() == 4 && opened.files.at("a").view == expected && opened.files.at("b").view == expected &&
         opened.files.at("c").view == expected && opened.files.at("empty").view.empty();
}

// Runs `disturb` before one operation of a reader after the other; `check` gets what it has read or its error.
int between_all_operations(const std::function<void(const std::filesystem::path& run)>& disturb,
                           const std::function<void(const VerifiedFiles*, const std::string&)>& check) {
  for (int at = 0;; ++at) {
    const TemporaryFolder folder;
    const auto run = folder / "run";
    save(run, 1);
    bool is_disturbed = false;
    FaultyFileSystem files([&](int number, const std::string&) {
      if (number != at || is_disturbed) return;
      is_disturbed = true;
      disturb(run);
    });
    INFO("before operation " << at);
    try {
      const auto opened = open_checkpoint(files, run / folder_name(1));
      check(&opened, "");
    } catch (const DamagedCheckpoint& error) {
      check(nullptr, error.what());
    }
    if (!is_disturbed) return at;
  }
}

TEST_CASE("VerifiedFiles: a replacement at any moment gives the one version or the other") {
  const int operations = between_all_operations([](const auto& run) { save(run, 2); },
                                                [](const auto* opened, const auto& error) {
                                                  REQUIRE(error.empty());
                                                  CHECK(is_one_version(*opened));
                                                });
  CHECK(operations >= 9);
}

TEST_CASE("VerifiedFiles: a removal at any moment is damage or does not matter") {
  int whole = 0, damaged = 0;
  between_all_operations(
      [](const auto& run) {
        FileSystem files;
        remove_checkpoint(files, run, 1);
      },
      [&](const auto* opened, const auto& error) {
        (opened != nullptr ? whole : damaged) += 1;
        if (opened != nullptr) {
          CHECK(is_one_version(*opened));
        } else {
          CHECK_THAT(error, ContainsSubstring("step-00000001 is damaged"));
        }
      });
  UNSCOPED_INFO("once all are open they stay readable");
  CHECK((whole > 1 && damaged > 1));
}

TEST_CASE("VerifiedFiles: bytes that change at any moment are noticed or came too late") {
  int damaged = 0;
  between_all_operations([](const auto& run) { test::write_file(run / folder_name(1) / "b", "Version 1"); },
                         [&](const auto* opened, const auto& error) {
                           // A mapping shows what is written to the file itself afterwards; ours are replaced.
                           if (opened == nullptr) {
                             ++damaged;
                             CHECK_THAT(error, ContainsSubstring("the bytes of b are not those that were written"));
                           }
                         });
  CHECK(damaged >= 4);
}

TEST_CASE("VerifiedFiles: an error of the disk at any moment is damage with its reason") {
  const TemporaryFolder folder;
  save(folder / "run", 1);
  for (int at = 0;; ++at) {
    FaultyFileSystem files(FaultyFileSystem::fail_at(at, EIO));
    const auto message = error_of<DamagedCheckpoint>([&] { open_checkpoint(files, folder / "run" / folder_name(1)); });
    if (message == "no error") {
      CHECK(at >= 9);
      break;
    }
    INFO(at);
    CHECK_THAT(message, ContainsSubstring("step-00000001 cannot be read: injected: "));
  }
}

TEST_CASE("VerifiedFiles: a writer that is always faster does not keep a reader forever") {
  const TemporaryFolder folder;
  const auto run = folder / "run";
  save(run, 1);
  int64_t sequence = 1;
  // Each time that the reader has its manifest another version is put in its place.
  FaultyFileSystem files([&](int, const std::string& operation) {
    if (operation == "open a") {
      std::filesystem::remove_all(run / folder_name(1));
      save(run, ++sequence);
    }
  });
  const auto message = error_of<DamagedCheckpoint>([&] {
    const auto opened = open_checkpoint(files, run / folder_name(1));
    CHECK(is_one_version(opened));
  });
  CHECK(sequence <= 30);
  CHECK_THAT(message, ContainsSubstring("is damaged"));
}

TEST_CASE("VerifiedFiles: a checkpoint without files is one") {
  const TemporaryFolder folder;
  FileSystem files;
  StagedFolder(files, folder / "run", 5).commit({.sequence = 3});
  const auto opened = open_checkpoint(files, folder / "run" / folder_name(5));
  CHECK(opened.manifest.step == 5);
  CHECK(opened.files.empty());
}

}  // namespace
}  // namespace ddp::storage
