// The strict reader of CIFAR-10's binary files: what it accepts, and the one clear line for everything else.
#include "data/cifar10_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "data/error.h"
#include "tests/data/files.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Content {
  std::vector<uint8_t> images;
  std::vector<int64_t> labels;
};

Content read(const fs::path& file) {
  const auto count = static_cast<size_t>(cifar10_image_count(file));
  Content content{.images = std::vector<uint8_t>(count * kCifar10ImageBytes), .labels = std::vector<int64_t>(count)};
  read_cifar10_file(file, content.images, content.labels);
  return content;
}

/// `action` throws a DataError at `path` whose one line names that path and contains `problem`.
void expect_data_error(const std::function<void()>& action, const fs::path& path, const std::string& problem) {
  try {
    action();
    FAIL() << "nothing thrown for " << path;
  } catch (const DataError& error) {
    EXPECT_EQ(error.path(), path);
    EXPECT_THAT(error.what(), AllOf(StartsWith(path.string() + ": "), HasSubstr(problem), Not(HasSubstr("\n"))));
  }
}

class Cifar10Format : public ::testing::Test {
 protected:
  fs::path file(const std::string& name) const { return folder_.path() / name; }
  const fs::path& dir() const { return folder_.path(); }

 private:
  testing::TemporaryFolder folder_;
};

TEST_F(Cifar10Format, reads_labels_and_pixels_of_every_record) {
  constexpr int64_t kCount = 600;  // more than one read
  testing::write_file(file("test_batch.bin"), testing::records(3, kCount));
  const Content content = read(file("test_batch.bin"));
  ASSERT_EQ(content.labels.size(), static_cast<size_t>(kCount));
  for (int64_t image = 0; image < kCount; ++image) {
    ASSERT_EQ(content.labels[static_cast<size_t>(image)], (image + 3) % 10);
    for (int64_t i = 0; i < kCifar10ImageBytes; ++i) {
      ASSERT_EQ(content.images[static_cast<size_t>(image * kCifar10ImageBytes + i)], testing::pixel(image + 3, i));
    }
  }
}

TEST_F(Cifar10Format, finds_the_training_files_that_are_there_in_order) {
  testing::write_file(file("data_batch_1.bin"), "");
  EXPECT_THAT(cifar10_files(dir(), Cifar10Split::kTrain), ElementsAre(file("data_batch_1.bin")));
  testing::write_file(file("data_batch_2.bin"), "");
  testing::write_file(file("data_batch_3.bin"), "");
  EXPECT_THAT(cifar10_files(dir(), Cifar10Split::kTrain),
              ElementsAre(file("data_batch_1.bin"), file("data_batch_2.bin"), file("data_batch_3.bin")));
  testing::write_file(file("data_batch_5.bin"), "");
  expect_data_error([&] { cifar10_files(dir(), Cifar10Split::kTrain); }, file("data_batch_4.bin"), "file not found");
}

TEST_F(Cifar10Format, names_what_is_missing) {
  expect_data_error([&] { cifar10_files(file("nowhere"), Cifar10Split::kTrain); }, file("nowhere"),
                    "data folder not found");
  expect_data_error([&] { cifar10_files(dir(), Cifar10Split::kTrain); }, file("data_batch_1.bin"), "file not found");
  expect_data_error([&] { cifar10_files(dir(), Cifar10Split::kTest); }, file("test_batch.bin"), "file not found");
  testing::write_file(file("a_file"), "text");
  expect_data_error([&] { cifar10_files(file("a_file"), Cifar10Split::kTest); }, file("a_file"), "Not a directory");
  fs::create_directory(file("cifar-10-batches-bin"));
  expect_data_error([&] { cifar10_files(dir(), Cifar10Split::kTest); }, file("test_batch.bin"),
                    "perhaps you mean " + file("cifar-10-batches-bin").string());
}

TEST_F(Cifar10Format, refuses_files_that_are_not_whole_records) {
  const std::string whole = testing::records(0, 3);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{3072}, size_t{3074}, whole.size() - 1, whole.size() - 3072}) {
    testing::write_file(file("x.bin"), whole.substr(0, size));
    expect_data_error([&] { cifar10_image_count(file("x.bin")); }, file("x.bin"),
                      "expected whole records of 3073 bytes (label and 3x32x32 pixels), got " + std::to_string(size));
  }
}

TEST_F(Cifar10Format, refuses_a_label_above_nine_and_says_which_image) {
  for (const int label : {10, 255}) {
    std::string content = testing::records(0, 300);
    content[270 * static_cast<size_t>(kCifar10RecordBytes)] = static_cast<char>(label);
    testing::write_file(file("x.bin"), content);
    expect_data_error([&] { read(file("x.bin")); }, file("x.bin"),
                      "image 270: expected a label from 0 to 9, got " + std::to_string(label));
  }
}

TEST_F(Cifar10Format, refuses_a_file_that_becomes_shorter_between_counting_and_reading) {
  testing::write_file(file("x.bin"), testing::records(0, 4));
  const auto count = static_cast<size_t>(cifar10_image_count(file("x.bin")));
  fs::resize_file(file("x.bin"), 5000);
  Content content{.images = std::vector<uint8_t>(count * kCifar10ImageBytes), .labels = std::vector<int64_t>(count)};
  expect_data_error([&] { read_cifar10_file(file("x.bin"), content.images, content.labels); }, file("x.bin"),
                    "expected 12292 bytes, could read 5000: the file has become shorter");
}

TEST_F(Cifar10Format, refuses_a_size_that_no_cifar_file_has_before_anything_is_allocated) {
  testing::write_file(file("x.bin"), "");
  fs::resize_file(file("x.bin"),
                  static_cast<uintmax_t>((kCifar10MaxImagesPerFile + 1) * kCifar10RecordBytes));  // a hole
  expect_data_error([&] { cifar10_image_count(file("x.bin")); }, file("x.bin"), "expected at most 1000000 images");
}

TEST_F(Cifar10Format, refuses_what_is_no_regular_file_without_blocking) {
  fs::create_directory(file("folder.bin"));
  expect_data_error([&] { cifar10_image_count(file("folder.bin")); }, file("folder.bin"), "got a folder");
  ASSERT_EQ(::mkfifo(file("pipe.bin").c_str(), 0600), 0);
  expect_data_error([&] { cifar10_image_count(file("pipe.bin")); }, file("pipe.bin"), "expected a regular file");
  expect_data_error([&] { cifar10_image_count("/dev/zero"); }, "/dev/zero", "expected a regular file");
}

TEST_F(Cifar10Format, says_why_a_file_cannot_be_opened) {
  expect_data_error([&] { cifar10_image_count(file("none.bin")); }, file("none.bin"), "No such file");
  fs::create_symlink(file("data_batch_1.bin"), file("data_batch_1.bin"));  // a loop: there, but nobody can open it
  EXPECT_THAT(cifar10_files(dir(), Cifar10Split::kTrain), ElementsAre(file("data_batch_1.bin")));
  expect_data_error([&] { cifar10_image_count(file("data_batch_1.bin")); }, file("data_batch_1.bin"),
                    "Too many levels of symbolic links");
  if (::geteuid() != 0) {  // root may read everything
    testing::write_file(file("x.bin"), testing::records(0, 1));
    fs::permissions(file("x.bin"), fs::perms::none);
    expect_data_error([&] { cifar10_image_count(file("x.bin")); }, file("x.bin"), "Permission denied");
  }
}

TEST_F(Cifar10Format, refuses_room_for_images_that_does_not_match_the_labels) {
  testing::write_file(file("x.bin"), testing::records(0, 2));
  std::vector<uint8_t> images(kCifar10ImageBytes);
  std::vector<int64_t> labels(2);
  EXPECT_THROW(read_cifar10_file(file("x.bin"), images, labels), std::invalid_argument);
}

TEST_F(Cifar10Format, reads_ten_class_names_and_uses_the_digits_without_them) {
  EXPECT_THAT(read_cifar10_class_names(dir()), ElementsAre("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"));
  testing::write_file(file("batches.meta.txt"), "a\nb\r\nT-shirt/top\n d \ne\nf\ng\nh\ni\nAnkle boot\n\n");
  EXPECT_THAT(read_cifar10_class_names(dir()),
              ElementsAre("a", "b", "T-shirt/top", "d", "e", "f", "g", "h", "i", "Ankle boot"));
}

TEST_F(Cifar10Format, refuses_class_names_that_are_not_ten_printable_lines) {
  const fs::path names = file("batches.meta.txt");
  const auto refused = [&](const std::string& content, const std::string& problem) {
    testing::write_file(names, content);
    expect_data_error([&] { read_cifar10_class_names(dir()); }, names, problem);
  };
  refused("", "expected ten class names, one a line, got 0");
  refused("a\nb\n", "got 2");
  refused("a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\n", "got 11");
  refused("a\nb\x1b[31m\nc\nd\ne\nf\ng\nh\ni\nj\n", "line 2: a class name has a control character");
  refused(std::string(1 << 20, 'a'), "got 1048576 bytes");
  fs::remove(names);
  fs::create_directory(names);
  expect_data_error([&] { read_cifar10_class_names(dir()); }, names, "got a folder");
}

}  // namespace
}  // namespace ddp
