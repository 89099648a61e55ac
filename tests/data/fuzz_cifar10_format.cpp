// Random damage to CIFAR-10 files: the reader gives exactly the bytes that are there, or a DataError that names the
// file, and which of the two follows from the damage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "data/cifar10_format.h"
#include "data/error.h"
#include "tests/data/files.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
constexpr auto kRecord = static_cast<size_t>(kCifar10RecordBytes);
constexpr auto kImage = static_cast<size_t>(kCifar10ImageBytes);

class Damage {
 public:
  explicit Damage(uint32_t seed) : random_(seed) {}

  size_t below(size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  void apply(std::string& content) {
    switch (below(6)) {
      case 0:
        content.resize(below(content.size() + 1));
        break;
      case 1:
        content.append(below(2 * kRecord), static_cast<char>(random_()));
        break;
      case 2:
        if (!content.empty()) content[below(content.size())] = static_cast<char>(random_());
        break;
      case 3:
        if (!content.empty())
          content[below(content.size() / kRecord + 1) * kRecord % content.size()] = static_cast<char>(below(20));
        break;
      case 4:
        content.erase(std::min(content.size(), below(content.size() + 1)), below(3) == 0 ? kRecord : below(4));
        break;
      default:
        content.insert(below(content.size() + 1), below(3) == 0 ? kRecord : below(4), static_cast<char>(random_()));
    }
  }

 private:
  std::mt19937 random_;
};

bool is_valid(const std::string& content) {
  if (content.empty() || content.size() % kRecord != 0) return false;
  for (size_t at = 0; at < content.size(); at += kRecord) {
    if (static_cast<uint8_t>(content[at]) > 9) return false;
  }
  return true;
}

TEST(Cifar10Fuzz, gives_the_bytes_of_a_valid_file_and_refuses_every_other) {
  const testing::TemporaryFolder folder;
  const fs::path file = folder.path() / "data_batch_1.bin";
  const std::string original = testing::records(0, 4);
  Damage damage(20240607);
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string content = original;
    for (size_t times = damage.below(4); times > 0; --times) damage.apply(content);
    testing::write_file(file, content);
    try {
      const auto count = static_cast<size_t>(cifar10_image_count(file));
      std::vector<uint8_t> images(count * kImage);
      std::vector<int64_t> labels(count);
      read_cifar10_file(file, images, labels);
      ASSERT_TRUE(is_valid(content)) << "round " << round;
      ASSERT_EQ(count, content.size() / kRecord);
      for (size_t i = 0; i < count; ++i) {
        const auto* record = reinterpret_cast<const uint8_t*>(content.data()) + i * kRecord;
        ASSERT_EQ(labels[i], record[0]);
        ASSERT_TRUE(std::equal(record + 1, record + kRecord, images.begin() + static_cast<std::ptrdiff_t>(i * kImage)));
      }
      ++accepted;
    } catch (const DataError& error) {
      ASSERT_FALSE(is_valid(content)) << "round " << round << ": " << error.what();
      ASSERT_EQ(error.path(), file);
      ++refused;
    }
  }
  EXPECT_GT(accepted, 200);
  EXPECT_GT(refused, 200);
}

TEST(Cifar10Fuzz, class_names_are_ten_printable_ones_or_refused) {
  const testing::TemporaryFolder folder;
  const fs::path file = folder.path() / "batches.meta.txt";
  std::mt19937 random(7);
  const std::string bytes = "ab \n\n\n\r\t\x1b";
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string content = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n";
    for (uint32_t times = random() % 5; times > 0; --times)
      content[random() % content.size()] = bytes[random() % bytes.size()];
    testing::write_file(file, content);
    try {
      const std::vector<std::string> names = read_cifar10_class_names(folder.path());
      ASSERT_EQ(names.size(), 10U);
      for (const std::string& name : names) {
        ASSERT_FALSE(name.empty());
        ASSERT_TRUE(std::all_of(name.begin(), name.end(), [](char c) { return c >= ' '; })) << "round " << round;
      }
      ++accepted;
    } catch (const DataError& error) {
      ASSERT_EQ(error.path(), file);
      ++refused;
    }
  }
  EXPECT_GT(accepted, 200);
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace ddp
