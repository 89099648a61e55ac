// The strict reader of CIFAR-10's binary files: what it accepts, and the one clear line for everything else.
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include <ddprun/data/byte_source.h>
#include <ddprun/data/file_formats.h>

#include "tests/data/cifar10_records.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using test::ElementsAre;

struct Content {
  std::vector<uint8_t> images;
  std::vector<int64_t> labels;
};

Content read_all(const fs::path& file) {
  const auto count = static_cast<size_t>(cifar10_image_count(file));
  Content content{.images = std::vector<uint8_t>(count * kCifar10ImageBytes), .labels = std::vector<int64_t>(count)};
  read_cifar10_file(file, content.images, content.labels);
  return content;
}

/// `action` throws a DataError at `path` whose one line names that path and contains `problem`.
void expect_data_error(const std::function<void()>& action, const fs::path& path, const std::string& problem) {
  try {
    action();
    FAIL("nothing thrown for " << path);
  } catch (const DataError& error) {
    CHECK(error.path() == path);
    CHECK_THAT(error.what(),
               StartsWith(path.string() + ": ") && ContainsSubstring(problem) && !ContainsSubstring("\n"));
  }
}

class Cifar10Format {
 protected:
  fs::path file(const std::string& name) const { return folder_.path() / name; }
  const fs::path& dir() const { return folder_.path(); }

 private:
  test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(Cifar10Format, "Cifar10Format: reads labels and pixels of every record") {
  constexpr int64_t kCount = 600;  // more than one read
  test::write_file(file("test_batch.bin"), test::records(3, kCount));
  const Content content = read_all(file("test_batch.bin"));
  REQUIRE(content.labels.size() == static_cast<size_t>(kCount));
  for (int64_t image = 0; image < kCount; ++image) {
    REQUIRE(content.labels[static_cast<size_t>(image)] == (image + 3) % 10);
    for (int64_t i = 0; i < kCifar10ImageBytes; ++i) {
      REQUIRE(content.images[static_cast<size_t>(image * kCifar10ImageBytes + i)] == test::pixel(image + 3, i));
    }
  }
}

TEST_CASE_METHOD(Cifar10Format, "Cifar10Format: finds the training files that are there in order") {
  test::write_file(file("data_batch_1.bin"), "");
  CHECK_THAT(cifar10_files(dir(), Cifar10Split::kTrain), ElementsAre(file("data_batch_1.bin")));
  test::write_file(file("data_batch_2.bin"), "");
  test::write_file(file("data_batch_3.bin"), "");
  CHECK_THAT(cifar10_files(dir(), Cifar10Split::kTrain),
             ElementsAre(file("data_batch_1.bin"), file("data_batch_2.bin"), file("data_batch_3.bin")));
  test::write_file(file("data_batch_5.bin"), "");
  expect_data_error([&] { cifar10_files(dir(), Cifar10Split::kTrain); }, file("data_batch_4.bin"), "file not found");
}

TEST_CASE_METHOD(Cifar10Format, "Cifar10Format: names what is missing") {
  expect_data_error([&] { cifar10_files(file("nowhere"), Cifar10Split::kTrain); }, file("nowhere"),
                    "data folder not found");
  expect_data_error([&] { cifar10_files(dir(), Cifar10Split::kTrain); }, file("data_batch_1.bin"), "file not found");
  expect_data_error([&] { cifar10_files(dir(), Cifar10Split::kTest); }, file("test_batch.bin"), "file not found");
  test::write_file(file("a_file"), "text");
  expect_data_error([&] { cifar10_files(file("a_file"), Cifar10Split::kTest); }, file("a_file"), "Not a directory");
  fs::create_directory(file("cifar-10-batches-bin"));
  expect_data_error([&] { cifar10_files(dir(), Cifar10Split::kTest); }, file("test_batch.bin"),
                    "perhaps you mean " + file("cifar-10-batches-bin").string());
}

TEST_CASE_METHOD(Cifar10Format, "Cifar10Format: refuses files that are not whole records") {
  const std::string whole = test::records(0, 3);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{3072}, size_t{3074}, whole.size() - 1, whole.size() - 3072}) {
    test::write_file(file("x.bin"), whole.substr(0, size));
    expect_data_error([&] { cifar10_image_count(file("x.bin")); }, file("x.bin"),
                      "expected whole records of 3073 bytes (label and 3x32x32 pixels), got " + std::to_string(size));
  }
}

TEST_CASE_METHOD(Cifar10Format, "Cifar10Format: refuses a label above nine and says which image") {
  for (const int label : {10, 255}) {
    std::string content = test::records(0, 300);
    content[270 * static_cast<size_t>(kCifar10RecordBytes)] = static_cast<char>(label);
    test::write_file(file("x.bin"), content);
    expect_data_error([&] { read_all(file("x.bin")); }, file("x.bin"),
                      "image 270: expected a label from 0 to 9, got " + std::to_string(label));
  }
}

TEST_CASE_METHOD(Cifar10Format, "Cifar10Format: refuses a file that becomes shorter between counting and reading") {
  test::write_file(file("x.bin"), test::records(0, 4));
  const auto count = static_cast<size_t>(cifar10_image_count(file("x.bin")));
  fs::resize_file(file("x.bin"), 5000);
  Content content{.images = std::vector<uint8_t>(count * kCifar10ImageBytes), .labels = std::vector<int64_t>(count)};
  expect_data_error([&] { read_cifar10_file(file("x.bin"), content.images, content.labels); }, file("x.bin"),
                    "expected 12292 bytes, could read 5000: the file shrank while reading");
}

TEST_CASE_METHOD(Cifar10Format, "Cifar10Format: refuses a size that no CIFAR file has before anything is allocated") {
  test::write_file(file("x.bin"), "");
  fs::resize_file(file("x.bin"),
                  static_cast<uintmax_t>((kCifar10MaxImagesPerFile + 1) * kCifar10RecordBytes));  // a hole
  expect_data_error([&] { cifar10_image_count(file("x.bin")); }, file("x.bin"), "expected at most 1000000 images");
}

TEST_CASE_METHOD(Cifar10Format, "Cifar10Format: refuses what is no regular file without blocking") {
  fs::create_directory(file("folder.bin"));
  expect_data_error([&] { cifar10_image_count(file("folder.bin")); }, file("folder.bin"), "got a folder");
  REQUIRE(::mkfifo(file("pipe.bin").c_str(), 0600) == 0);
  expect_data_error([&] { cifar10_image_count(file("pipe.bin")); }, file("pipe.bin"), "expected a regular file");
  expect_data_error([&] { cifar10_image_count("/dev/zero"); }, "/dev/zero", "expected a regular file");
}

TEST_CASE_METHOD(Cifar10Format, "Cifar10Format: says why a file cannot be opened") {
  expect_data_error([&] { cifar10_image_count(file("none.bin")); }, file("none.bin"), "No such file");
  fs::create_symlink(file("data_batch_1.bin"), file("data_batch_1.bin"));  // a loop: there, but nobody can open it
  CHECK_THAT(cifar10_files(dir(), Cifar10Split::kTrain), ElementsAre(file("data_batch_1.bin")));
  expect_data_error([&] { cifar10_image_count(file("data_batch_1.bin")); }, file("data_batch_1.bin"),
                    "Too many levels of symbolic links");
  if (::geteuid() != 0) {  // root may read everything
    test::write_file(file("x.bin"), test::records(0, 1));
    fs::permissions(file("x.bin"), fs::perms::none);
    expect_data_error([&] { cifar10_image_count(file("x.bin")); }, file("x.bin"), "Permission denied");
  }
}

TEST_CASE_METHOD(Cifar10Format, "Cifar10Format: refuses room for images that does not match the labels") {
  test::write_file(file("x.bin"), test::records(0, 2));
  std::vector<uint8_t> images(kCifar10ImageBytes);
  std::vector<int64_t> labels(2);
  CHECK_THROWS_AS(read_cifar10_file(file("x.bin"), images, labels), std::invalid_argument);
}

TEST_CASE_METHOD(Cifar10Format, "Cifar10Format: reads ten class names and uses the digits without them") {
  CHECK_THAT(read_cifar10_class_names(dir()), ElementsAre("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"));
  test::write_file(file("batches.meta.txt"), "a\nb\r\nT-shirt/top\n d \ne\nf\ng\nh\ni\nAnkle boot\n\n");
  CHECK_THAT(read_cifar10_class_names(dir()),
             ElementsAre("a", "b", "T-shirt/top", "d", "e", "f", "g", "h", "i", "Ankle boot"));
}

TEST_CASE_METHOD(Cifar10Format, "Cifar10Format: refuses class names that are not ten printable lines") {
  const fs::path names = file("batches.meta.txt");
  const auto refused = [&](const std::string& content, const std::string& problem) {
    test::write_file(names, content);
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
