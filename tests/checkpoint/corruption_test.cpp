// Random damage to a checkpoint folder and to a .pt file: every change is refused with a reason. CORRUPTIONS says how
// many are tried of each.

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <set>
#include <stdexcept>
#include <string>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/pt/pt_file.h"
#include "checkpoint/pt/pt_writer.h"
#include "checkpoint/storage/inventory.h"
#include "checkpoint/storage/staged_folder.h"
#include "tests/checkpoint/text_sink.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

int corruptions() {
  const char* text = std::getenv("CORRUPTIONS");
  return text != nullptr ? std::atoi(text) : 2000;
}

std::string random_bytes(size_t size) {
  std::mt19937_64 random(size);
  std::string bytes(size, '\0');
  for (auto& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

std::string safetensors_bytes() {
  safetensors::Header header;
  header.metadata = {{"epoch", "3"}};
  header.tensors = {{.name = "fc.weight", .dtype = safetensors::DType::kF32, .shape = {30, 20}},
                    {.name = "fc.bias", .dtype = safetensors::DType::kF32, .shape = {30}}};
  safetensors::assign_ranges(header.tensors);
  return safetensors::format_header(header) + random_bytes(2520);
}

std::string pt_bytes() {
  const auto weight = random_bytes(2400), bias = random_bytes(120);
  test::TextSink sink;
  pt::write_pt(sink, {.model = {{.name = "fc.weight", .dtype = "float32", .sizes = {30, 20}, .bytes = weight},
                                {.name = "fc.bias", .dtype = "float32", .sizes = {30}, .bytes = bias}}});
  return sink.text;
}

// One of: bits flipped, a byte set, cut, extended, a piece repeated, two pieces swapped, an edit near the front.
std::string damaged(const std::string& bytes, std::mt19937_64& random) {
  auto changed = bytes;
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  const auto at = below(changed.size());
  switch (below(7)) {
    case 0:
      for (auto flips = 1 + below(3); flips > 0; --flips) {
        auto& byte = changed[below(changed.size())];
        byte = static_cast<char>(byte ^ (1 << below(8)));
      }
      break;
    case 1:
      changed[at] = static_cast<char>(random());
      break;
    case 2:
      changed.resize(at);
      break;
    case 3:
      changed += random_bytes(1 + below(200));
      break;
    case 4:
      changed.insert(at, changed.substr(below(changed.size()), 1 + below(100)));
      break;
    case 5: {
      const auto size = 1 + below(64);
      const auto other = below(changed.size());
      for (size_t i = 0; i < size && std::max(at, other) + i < changed.size(); ++i) {
        std::swap(changed[at + i], changed[other + i]);
      }
      break;
    }
    default:
      changed[below(std::min<size_t>(changed.size(), 160))] = "0123456789{}[]:,\"PK\1\2"[below(21)];
  }
  return changed;
}

TEST_CASE("Corruption: every change of a file in a checkpoint is refused") {
  const test::TemporaryFolder folder;
  storage::FileSystem file_system;
  {
    storage::StagedFolder staged(file_system, folder / "run", 7);
    const auto model = safetensors_bytes();
    const std::string values = "{\"best\": 0.5}\n";
    staged.write("model.safetensors", [&](storage::ByteSink& sink) { sink.write(model.data(), model.size()); });
    staged.write("trainer.json", [&](storage::ByteSink& sink) { sink.write(values.data(), values.size()); });
    staged.commit({.world_size = 2, .metrics = {{"loss", 0.25}}});
  }
  const auto checkpoint = folder / "run" / "step-00000007";
  const std::string names[] = {"model.safetensors", "trainer.json", "MANIFEST.json"};
  const auto verify = [&] {
    storage::verify_files(file_system, checkpoint, storage::read_manifest(file_system, checkpoint));
  };
  verify();
  std::mt19937_64 random(1);
  int tried = 0;
  while (tried < corruptions()) {
    const auto& name = names[random() % 3];
    const auto original = test::read_file(checkpoint / name);
    // Now and then the bytes of another file.
    const auto changed =
        random() % 50 == 0 ? test::read_file(checkpoint / names[random() % 3]) : damaged(original, random);
    if (changed == original) continue;
    test::write_file(checkpoint / name, changed);
    INFO(name << ", corruption " << tried);
    REQUIRE_THROWS_AS(verify(), storage::DamagedCheckpoint);
    test::write_file(checkpoint / name, original);
    ++tried;
  }
  verify();
}

TEST_CASE("Corruption: every change of a pt file is refused") {
  const auto original = pt_bytes();
  pt::PtFile(storage::own_bytes(original), "file.pt");
  std::mt19937_64 random(2);
  for (int tried = 0; tried < corruptions();) {
    const auto changed = damaged(original, random);
    if (changed == original) continue;
    INFO("corruption " << tried);
    REQUIRE_THROWS_AS(pt::PtFile(storage::own_bytes(changed), "file.pt"), std::runtime_error);
    ++tried;
  }
}

// The format has no checksum: what is not refused must still be a file that keeps the format's promises.
TEST_CASE("Corruption: a bare safetensors file is refused when its layout is wrong") {
  const auto original = safetensors_bytes();
  std::mt19937_64 random(3);
  int refused = 0;
  for (int tried = 0; tried < corruptions(); ++tried) {
    const auto changed = damaged(original, random);
    try {
      const auto length = safetensors::parse_header_length(changed, changed.size());
      const auto data = changed.size() - safetensors::kLengthBytes - length;
      uint64_t covered = 0;
      for (const auto& entry :
           safetensors::parse_header(std::string_view(changed).substr(safetensors::kLengthBytes, length), data)
               .tensors) {
        covered += entry.end - entry.begin;
      }
      CHECK(covered == data);
      INFO("cut and extended files have the wrong size");
      CHECK(changed.size() == original.size());
    } catch (const safetensors::FormatError&) {
      ++refused;
    }
  }
  CHECK(refused > corruptions() / 3);
}

}  // namespace
}  // namespace ddp
