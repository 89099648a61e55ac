#include "checkpoint/storage/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/checkpoint/forged_manifest.h"
#include "tests/checkpoint/temporary_folder.h"

namespace ddp::storage {
namespace {

using test::message_of;
using test::with_checksum;
using ::testing::HasSubstr;

Manifest example() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return {.step = 1200,
          .sequence = 17,
          .world_size = 4,
          .metrics = {{"loss", 0.125},
                      {"val/accuracy (%)", 71.3},
                      {"broken", std::nan("")},
                      {"best", kInfinity},
                      {"worst", -kInfinity}},
          .files = {{"model.safetensors", {.size = 123456789012, .crc32c = 0x00c0ffee}},
                    {"trainer.json", {.size = 0, .crc32c = 0}}}};
}

TEST(Manifest, ComesBackAsItWasWritten) {
  const auto parsed = parse_manifest(format_manifest(example()));
  EXPECT_EQ(parsed.step, 1200);
  EXPECT_EQ(parsed.sequence, 17);
  EXPECT_EQ(parsed.world_size, 4);
  EXPECT_EQ(parsed.metrics.at("best"), example().metrics.at("best"));
  EXPECT_EQ(parsed.metrics.at("worst"), example().metrics.at("worst"));
  EXPECT_EQ(parsed.files, example().files);
  EXPECT_EQ(parsed.metrics.at("val/accuracy (%)"), 71.3);
  EXPECT_TRUE(std::isnan(parsed.metrics.at("broken")));
  const auto empty = parse_manifest(format_manifest({}));
  EXPECT_TRUE(empty.files.empty() && empty.metrics.empty());
}

TEST(Manifest, TheVersionWithoutASequenceIsStillReadAndWritten) {
  auto manifest = example();
  manifest.sequence = 0;
  const auto text = format_manifest(manifest);
  EXPECT_THAT(text, HasSubstr("\"version\": 1,\n  \"step\": 1200,\n  \"world_size\": 4,"));
  EXPECT_THAT(text, HasSubstr("\"best\": null"));
  const auto parsed = parse_manifest(text);
  EXPECT_EQ(parsed.sequence, 0);
  EXPECT_TRUE(std::isnan(parsed.metrics.at("best")));
}

TEST(Manifest, EverySingleChangedCutOrAddedByteIsRefused) {
  const auto text = format_manifest(example());
  for (size_t i = 0; i < text.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      auto changed = text;
      changed[i] = static_cast<char>(value);
      if (changed == text) continue;
      EXPECT_THROW(parse_manifest(changed), ManifestError) << i << " " << value;
    }
    EXPECT_THROW(parse_manifest(text.substr(0, i)), ManifestError) << i;
    EXPECT_THROW(parse_manifest(text + text.substr(0, i + 1)), ManifestError);
  }
}

TEST(Manifest, AForgedChecksumDoesNotOpenOtherFolders) {
  const auto forged = [](const std::string& from, const std::string& to) {
    auto text = format_manifest(example());
    text.replace(text.find(from), from.size(), to);
    return message_of([&] { parse_manifest(with_checksum(text)); });
  };
  EXPECT_THAT(forged("model.safetensors", "../../etc/passwd"), HasSubstr("cannot be the name"));
  EXPECT_THAT(forged("model.safetensors", ".hidden"), HasSubstr("cannot be the name"));
  EXPECT_THAT(forged("\"step\": 1200", "\"step\": -1"), HasSubstr("must not be negative"));
  EXPECT_THAT(forged("\"step\": 1200", "\"step\": 01200"), HasSubstr("not in the form"));
  EXPECT_THAT(forged("\"world_size\": 4", "\"world_size\": 0"), HasSubstr("must be positive"));
  EXPECT_THAT(forged("\"version\": 2", "\"version\": 3"),
              HasSubstr("version 3, but this program reads versions 1 and 2"));
  EXPECT_THAT(forged("\"version\": 2", "\"version\": 1"), HasSubstr("not what a checkpoint's manifest looks like"));
  EXPECT_THAT(forged("\"sequence\": 17", "\"sequence\": 0"), HasSubstr("not in the form"));
  EXPECT_THAT(forged("\"sequence\": 17", "\"sequence\": -1"), HasSubstr("must not be negative"));
  EXPECT_THAT(forged("{\"__float__\": \"nan\"}", "{\"__float__\": \"NaN\"}"), HasSubstr("not what"));
  EXPECT_THAT(forged("{\"__float__\": \"nan\"}", "null"), HasSubstr("not in the form"));
}

TEST(Manifest, WhatCannotBeWrittenIsSaid) {
  const auto refusal = [](const Manifest& manifest) { return message_of([&] { format_manifest(manifest); }); };
  EXPECT_THAT(refusal({.step = -1}), HasSubstr("step must not be negative"));
  EXPECT_THAT(refusal({.metrics = {{"a\"b", 1}}}), HasSubstr("the metric 'a\"b' needs a name"));
  EXPECT_THAT(refusal({.files = {{"a/b", {}}}}), HasSubstr("'a/b' cannot be the name"));
}

}  // namespace
}  // namespace ddp::storage
