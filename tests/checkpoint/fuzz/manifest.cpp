// Manifests of checkpoints. The first byte chooses: as they are, or with their checksum put right.
#include "checkpoint/storage/manifest.h"

#include <limits>

#include "tests/checkpoint/forged_manifest.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  using ddp::storage::format_manifest;
  const std::string example =
      format_manifest({.step = 1200,
                       .world_size = 4,
                       .metrics = {{"loss", 0.125}, {"val/accuracy (%)", 71.3}, {"large", 1e300}, {"tiny", 5e-324}},
                       .files = {{"model.safetensors", {.size = 123456789012, .crc32c = 0x00c0ffee}},
                                 {"trainer.json", {.size = 0, .crc32c = 0}}}});
  const std::string numbered = format_manifest(
      {.step = 7, .sequence = INT64_MAX, .metrics = {{"best", -std::numeric_limits<double>::infinity()}}});
  return {chosen('0', example),
          chosen('0', numbered),
          chosen('1', numbered),
          chosen('1', example),
          chosen('1', format_manifest({})),
          chosen('1', format_manifest({.step = INT64_MAX, .world_size = ddp::storage::kMaxWorldSize, .metrics = {{"a", -0.0}}}))};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  Input input(bytes);
  const bool is_forged = input.byte() % 2 == 1;  // '0' is 48
  std::string text(input.rest());
  if (is_forged) text = ddp::test::with_checksum(std::move(text));
  try {
    const ddp::storage::Manifest manifest = ddp::storage::parse_manifest(text);
    require(manifest.step >= 0 && manifest.world_size >= 1, "a manifest is of a step and a world");
    require(manifest.sequence >= 0, "checkpoints are numbered upwards");
    for (const auto& [name, file] : manifest.files)
      require(name.find('/') == std::string::npos && !name.starts_with('.'),
              "a file is in the checkpoint's own folder");
    require(ddp::storage::format_manifest(manifest) == text, "there is one text for one manifest");
    return Outcome::kAccepted;
  } catch (const ddp::storage::ManifestError& error) {
    require(*error.what() != '\0', "a refusal says why");
    return Outcome::kRefused;
  }
}
