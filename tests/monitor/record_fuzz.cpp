// Random damage to event files, and random bytes as messages: the readers give what is there or throw, nothing else.
#include <gtest/gtest.h>

#include <random>
#include <stdexcept>

#include "monitor/event.h"
#include "tests/monitor/files.h"

namespace ddp {
namespace {

TEST(RecordFuzz, gives_undamaged_records_in_order_or_throws) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "events";
  std::vector<std::string> payloads;
  std::string original;
  for (int i = 0; i < 6; ++i) {
    payloads.push_back(encode_scalar({.wall_time = 1.0 * i, .step = i}, "loss", i));
    wire::append_record(original, payloads.back());
  }
  std::mt19937 random(11);
  int thrown = 0;
  int shortened = 0;
  for (int round = 0; round < 600; ++round) {
    std::string content = original;
    const size_t at = random() % content.size();
    switch (random() % 3) {
      case 0:
        content[at] ^= static_cast<char>(1U << random() % 8);
        break;
      case 1:
        content.resize(at);
        break;
      default:
        content.insert(at, random() % 20, static_cast<char>(random()));
    }
    testing::write_file(file, content);
    std::vector<std::string> seen;
    try {
      wire::RecordReader reader(file);
      while (auto record = reader.next()) seen.push_back(*record);
      if (seen.size() < payloads.size()) ++shortened;
    } catch (const std::runtime_error&) {
      ++thrown;
    }
    ASSERT_LE(seen.size(), payloads.size());
    for (size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], payloads[i]) << "round " << round;
  }
  EXPECT_GT(thrown, 100);
  EXPECT_GT(shortened, 100);
}

TEST(RecordFuzz, fields_lie_within_the_message) {
  std::mt19937 random(5);
  const std::string valid = encode_text({.wall_time = 2, .step = 3}, "tag", "some text");
  int thrown = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string message = valid;
    for (size_t times = random() % 4; times > 0; --times)
      message[random() % message.size()] = static_cast<char>(random());
    message.resize(random() % (message.size() + 1));
    try {
      wire::MessageReader reader(message);
      while (const auto field = reader.next()) {
        ASSERT_GT(field->number, 0U);
        if (field->bytes.empty()) continue;
        ASSERT_GE(field->bytes.data(), message.data());
        ASSERT_LE(field->bytes.data() + field->bytes.size(), message.data() + message.size());
      }
    } catch (const std::runtime_error&) {
      ++thrown;
    }
  }
  EXPECT_GT(thrown, 5000);
}

}  // namespace
}  // namespace ddp
