// CIFAR-10's and CIFAR-100's files and lists of names; the first byte chooses. A record is 3,073 or 3,074 bytes, most
// of which mean nothing to a reader: an input holds per record its labels, and how many pixels follow when not all of
// them.
#include <algorithm>

#include <ddprun/data/file_formats.h>

#include "tests/data/fuzz/reader.h"
#include "tests/fuzz/memory_file.h"

namespace {

using namespace ddp;
using fuzz::require;

constexpr auto kImage = static_cast<std::size_t>(kCifar10ImageBytes);

struct Records {
  std::string content{};
  std::vector<std::uint8_t> labels{};  // of all records, one after the other
  bool is_whole = true;
};

Records expand(fuzz::Input input, std::size_t labels_each) {
  Records records;
  while (!input.is_empty() && records.labels.size() < 64) {
    for (std::size_t i = 0; i < labels_each; ++i) {
      records.labels.push_back(input.byte());
      records.content.push_back(static_cast<char>(records.labels.back()));
    }
    const std::uint8_t missing = input.byte();
    records.is_whole = records.is_whole && missing == 0;
    records.content.append(kImage - missing, static_cast<char>(records.labels.back() + 7));
  }
  return records;
}

bool are_below(const std::vector<std::uint8_t>& labels, std::size_t first, std::size_t step, int limit) {
  for (std::size_t i = first; i < labels.size(); i += step) {
    if (labels[i] >= limit) return false;
  }
  return true;
}

// Records that are not whole can add up to some that are: only what is known for sure is required.
fuzz::Outcome check_cifar10(const fuzz::Input& input) {
  const Records records = expand(input, 1);
  const bool is_valid = records.is_whole && !records.labels.empty() && are_below(records.labels, 0, 1, 10);
  const fuzz::MemoryFile file(records.content);
  const auto outcome = fuzz::may_refuse(file.path(), [&] {
    const auto count = static_cast<std::size_t>(cifar10_image_count(file.path()));
    require(count > 0 && count * (kImage + 1) == records.content.size(), "a file is whole records");
    std::vector<std::uint8_t> images(count * kImage);
    std::vector<int64_t> labels(count);
    read_cifar10_file(file.path(), images, labels);
    const auto* byte = reinterpret_cast<const std::uint8_t*>(records.content.data());
    for (std::size_t i = 0; i < count; ++i) {
      require(labels[i] == *byte && labels[i] < kCifar10Classes, "a label is the record's first byte");
      require(std::equal(byte + 1, byte + 1 + kImage, images.data() + i * kImage), "the pixels are the record's");
      byte += kImage + 1;
    }
  });
  if (is_valid) require(outcome == fuzz::Outcome::kAccepted, "whole records with labels in range are read");
  return outcome;
}

fuzz::Outcome check_cifar100(const fuzz::Input& input) {
  const Records records = expand(input, 2);
  const bool is_valid = records.is_whole && !records.labels.empty() && are_below(records.labels, 0, 2, 20) &&
                        are_below(records.labels, 1, 2, 100);
  const fuzz::MemoryFile file(records.content);
  const auto outcome = fuzz::may_refuse(file.path(), [&] {
    const Cifar100Content content = read_cifar100_file(file.path());
    const std::size_t count = records.content.size() / (kImage + 2);
    require(count > 0 && count * (kImage + 2) == records.content.size(), "a file is whole records");
    require(content.images.size() == count * kImage && content.coarse_labels.size() == count &&
                content.fine_labels.size() == count,
            "every record is read");
    const auto* byte = reinterpret_cast<const std::uint8_t*>(records.content.data());
    for (std::size_t i = 0; i < count; ++i) {
      require(content.coarse_labels[i] == byte[0] && byte[0] < kCifar100CoarseClasses,
              "the first byte is the coarse label");
      require(content.fine_labels[i] == byte[1] && byte[1] < kCifar100FineClasses, "the second byte is the fine label");
      require(std::equal(byte + 2, byte + 2 + kImage, content.images.data() + i * kImage),
              "the pixels are the record's");
      byte += kImage + 2;
    }
  });
  if (is_valid) require(outcome == fuzz::Outcome::kAccepted, "whole records with labels in range are read");
  return outcome;
}

fuzz::Outcome check_names(std::string_view text) {
  const fuzz::MemoryFile file(text);
  return fuzz::may_refuse(file.path(), [&] {
    const std::vector<std::string> names = read_label_names(file.path(), kCifar10Classes);
    require(names.size() == static_cast<std::size_t>(kCifar10Classes), "there are as many names as were asked for");
    for (const std::string& name : names) {
      require(!name.empty(), "a name is not empty");
      require(std::all_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x20; }),
              "a name holds no control character");
    }
  });
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  using namespace std::string_literals;
  return {"0\0\0\5\0\x09\0"s,
          "0\1\0\x0a\0"s,
          "0\1\1\2\xff"s,
          "1\0\0\0\x13\x63\0"s,
          "1\1\1\0\x14\1\0"s,
          "1\1\1\2"s,
          "2a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n"s,
          "2a\r\nb\nc\nd\ne\n\nf\ng\nh\ni\nj"s};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  Input input(bytes);
  switch (input.byte() % 3) {  // '0' is 48
    case 0:
      return check_cifar10(input);
    case 1:
      return check_cifar100(input);
    default:
      return check_names(input.rest());
  }
}
