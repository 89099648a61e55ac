// Writers and bars that are given tensors.
#include <ATen/ATen.h>

#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <ddprun/monitor/figure.h>
#include <ddprun/monitor/progress_bar.h>
#include <ddprun/monitor/summary_writer.h>

#include "tests/monitor/event_files.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::TemporaryFolder;

// What was written of the one event after the file's version, without its time.
std::string event_of(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string bytes = test::read_file(entry.path());
    return bytes.substr(bytes.find("tag"));
  }
  return "";
}

// The same event of a tensor and of what stands in memory.
template <typename OfTensor, typename OfMemory>
void check_same(OfTensor of_tensor, OfMemory of_memory) {
  const TemporaryFolder folder;
  for (const bool is_tensor : {true, false}) {
    SummaryWriter writer(folder / (is_tensor ? "tensor" : "memory"));
    is_tensor ? of_tensor(writer) : of_memory(writer);
  }
  const std::string found = event_of(folder / "tensor");
  CHECK(found.size() > 4);
  // The end is a checksum that covers the time.
  const std::string expected = event_of(folder / "memory");
  CHECK(found.substr(0, found.size() - 4) == expected.substr(0, expected.size() - 4));
}

TEST_CASE("SummaryWriter: a tensor of one element is a scalar, whatever its type") {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong}) {
    check_same([&](SummaryWriter& writer) { writer.add_scalar("tag", at::ones({1}, type) * 3, 7); },
               [](SummaryWriter& writer) { writer.add_scalar("tag", 3, 7); });
  }
}

TEST_CASE("SummaryWriter: a tensor's values make a histogram, with or without a gradient and gaps") {
  const auto values = at::arange(12, at::kFloat).view({3, 4}).requires_grad_().t();
  const std::vector<float> memory = {0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11};
  check_same([&](SummaryWriter& writer) { writer.add_histogram("tag", values, 1); },
             [&](SummaryWriter& writer) { writer.add_histogram("tag", std::span<const float>(memory), 1); });
}

TEST_CASE("SummaryWriter: a histogram has the values of the tensor's dtype, also those that no float32 holds") {
  const std::vector<double> doubles = {-1e300, 1e-300, 1.0 + 1e-12, 2e38, 1e39};
  check_same([&](SummaryWriter& writer) { writer.add_histogram("tag", at::tensor(doubles, at::kDouble), 1); },
             [&](SummaryWriter& writer) { writer.add_histogram("tag", std::span<const double>(doubles), 1); });
  const std::vector<int64_t> whole = {(int64_t{1} << 53) + 1, 16777217, -3};
  check_same([&](SummaryWriter& writer) { writer.add_histogram("tag", at::tensor(whole, at::kLong), 1); },
             [&](SummaryWriter& writer) { writer.add_histogram("tag", std::span<const int64_t>(whole), 1); });
  const auto ints = at::tensor({16777217, -3}, at::kInt);
  const std::vector<double> same = {16777217, -3};
  check_same([&](SummaryWriter& writer) { writer.add_histogram("tag", ints, 1); },
             [&](SummaryWriter& writer) { writer.add_histogram("tag", std::span<const double>(same), 1); });
}

TEST_CASE("FigureLine: has the values of the tensors' dtype") {
  const FigureLine line = figure_line("large", at::tensor({0, 16777217}, at::kInt), at::tensor({1e39, 1e-300}));
  CHECK(line.x == std::vector<double>{0, 16777217});
  CHECK(line.y == std::vector<double>{1e39, 1e-300});
}

TEST_CASE("SummaryWriter: images are tensors of bytes or of values from 0 to 1, one or several") {
  const auto bytes = at::arange(2 * 3 * 4 * 5, at::kByte).view({2, 3, 4, 5});
  const ImagesView<uint8_t> memory{
      .pixels = {bytes.const_data_ptr<uint8_t>(), 120}, .count = 2, .channels = 3, .height = 4, .width = 5};
  const auto expected = [&](SummaryWriter& writer) { writer.add_images("tag", memory, 1); };
  check_same([&](SummaryWriter& writer) { writer.add_images("tag", bytes, 1); }, expected);
  check_same([&](SummaryWriter& writer) { writer.add_images("tag", bytes.to(at::kDouble) / 255, 1); }, expected);
  const ImagesView<uint8_t> mask{.pixels = memory.pixels.subspan(0, 20), .channels = 1, .height = 4, .width = 5};
  check_same([&](SummaryWriter& writer) { writer.add_image("tag", bytes[0][0], 1); },
             [&](SummaryWriter& writer) { writer.add_images("tag", mask, 1); });
  const TemporaryFolder folder;
  SummaryWriter writer(folder / "run");
  CHECK_THROWS_WITH(writer.add_image("tag", bytes, 1), ContainsSubstring("expected one image"));
  CHECK_THROWS_WITH(writer.add_images("tag", bytes[0][0][0], 1), ContainsSubstring("got 1 dimensions"));
}

TEST_CASE("SummaryWriter and MetricsFile: without a name they write nothing") {
  SummaryWriter writer("");
  writer.add_scalar("tag", at::ones({1}), 1);
  CHECK_FALSE(writer.is_active());
}

TEST_CASE("ProgressBar: a tensor is shown as its value, read where the bar is drawn") {
  std::FILE* stream = std::tmpfile();
  {
    ProgressBar bar(1, {.stream = stream});
    auto loss = at::full({1}, 0.5).requires_grad_();
    bar.set_postfix({{"loss", loss}, {"step", 3}});
    bar.advance();
  }
  std::rewind(stream);
  std::string text(1000, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), stream));
  std::fclose(stream);
  CHECK_THAT(text, ContainsSubstring("loss=0.5, step=3]"));
}

}  // namespace
}  // namespace ddp
