// Samples in tar archives through a Loader: decoders, indexes, damage, resumes.
#include <ATen/ATen.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <stdexcept>

#include <ddprun/data/arrays.h>
#include <ddprun/data/byte_source.h>
#include <ddprun/data/device_loader.h>
#include <ddprun/data/streams.h>
#include <ddprun/samplers/stream_sampler.h>

#include "tests/data/gzip.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using test::ElementsAre;

class WebDatasetTest {
 protected:
  fs::path path(const std::string& name) const { return folder_.path() / name; }

  /// Archives of samples whose class is their number.
  std::vector<std::string> archives(int64_t samples, int64_t in_archive) const {
    ShardWriter writer(path("s"), {.most_samples = in_archive});
    for (int64_t i = 0; i < samples; ++i)
      writer.add("k" + std::to_string(i), {{"cls", std::to_string(i)}, {"txt", "t"}});
    writer.close();
    std::vector<std::string> urls;
    for (const auto& archive : writer.archives()) urls.push_back(archive);
    return urls;
  }

  static Batch decode(const ShardSample& sample, SampleRandom& random) {
    const int64_t number = sample.number_in("cls");
    if (number < 0) throw DataError(sample.key, "is broken");
    return {.data = at::full({1}, random.uniform(), at::kDouble), .target = at::scalar_tensor(number, at::kLong)};
  }

  template <typename Loaded>
  static std::vector<int64_t> targets(Loaded& loader) {
    std::vector<int64_t> all;
    for (auto& batch : loader) {
      const auto* values = batch.target.template const_data_ptr<int64_t>();
      all.insert(all.end(), values, values + batch.target.numel());
    }
    return all;
  }

 private:
  test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(WebDatasetTest,
                 "WebDataset: gives the archives' samples, and the random numbers depend on the sample alone") {
  const WebDataset dataset(archives(23, 5), decode, {.seed = 4});
  CHECK(dataset.parts() == 5);
  CHECK(dataset.part_size(4) == 3);
  at::Tensor first;
  for (const int workers : {0, 1, 3}) {
    StreamSampler sampler({.buffer = 8, .num_replicas = 1});
    DeviceLoader loader(dataset, sampler, at::kCPU, {.batch_size = 4, .workers = workers});
    CHECK(loader.size() == 6);
    std::vector<std::pair<int64_t, double>> seen;
    for (auto& batch : loader) {
      for (int64_t i = 0; i < batch.target.numel(); ++i) {
        seen.emplace_back(batch.target[i].item<int64_t>(), batch.data[i].item<double>());
      }
    }
    at::Tensor values = at::empty({23}, at::kDouble);
    std::ranges::sort(seen);
    for (int64_t i = 0; i < 23; ++i) {
      CHECK(seen.at(static_cast<size_t>(i)).first == i);
      values[i] = seen[static_cast<size_t>(i)].second;
    }
    if (workers == 0) first = values;
    CHECK(values.equal(first));
    CHECK(std::get<0>(at::_unique(values)).numel() == 23);
  }
}

TEST_CASE_METHOD(WebDatasetTest, "WebDataset: resumes in mid-epoch with an index, without one, and from commands") {
  const auto plain = archives(40, 10);
  std::vector<std::string> commands;
  for (const auto& url : plain) commands.push_back("pipe:cat " + url);
  for (const bool has_index : {true, false}) {
    if (!has_index) {
      for (const auto& url : plain) fs::remove(url + ".index");
    }
    for (const auto& urls : {plain, commands}) {
      const WebDataset dataset(urls, decode);
      StreamSampler sampler({.buffer = 7, .seed = 2, .num_replicas = 2, .rank = 1});
      Loader loader(dataset, sampler, {.batch_size = 3, .workers = 2});
      sampler.set_epoch(1);
      const auto whole = targets(loader);
      CHECK(whole.size() == 20);
      int64_t batches = 0;
      for ([[maybe_unused]] auto& batch : loader) {
        if (++batches == 4) break;
      }
      const std::string state = loader.save();
      StreamSampler later({.buffer = 7, .num_replicas = 2, .rank = 1});
      Loader rest(dataset, later, {.batch_size = 3});
      rest.load(state);
      CHECK(targets(rest) == std::vector<int64_t>(whole.begin() + 12, whole.end()));
    }
  }
}

TEST_CASE_METHOD(WebDatasetTest, "WebDataset: decodes files by suffix, and errors name archive and key") {
  save_npy(path("x.npy"), at::arange(6, at::kFloat).view({2, 3}));
  ShardWriter writer(path("d"));
  writer.add("a/b", {{"ppm", "P6 2 1 255\n" + std::string("\1\2\3\4\5\6")},
                     {"cls", " 12\n"},
                     {"x.npy", test::read_file(path("x.npy"))},
                     {"json", "{}"}});
  writer.add("c", {{"cls", "1x"}});
  writer.close();
  const std::string url = writer.archives().at(0);
  const WebDataset dataset(url, decode);
  auto walk = dataset.open(0);
  const auto sample = walk.next().value();
  CHECK(sample.key == "a/b");
  CHECK(sample.image().equal(at::tensor({1, 4, 2, 5, 3, 6}, at::kByte).view({3, 1, 2})));
  CHECK(sample.number_in("class;cls") == 12);
  CHECK(sample.npy("x.npy").equal(at::arange(6, at::kFloat).view({2, 3})));
  CHECK(sample.text("json") == "{}");
  CHECK(sample.has("cls"));
  CHECK_FALSE(sample.has("jpg"));
  CHECK_THROWS_MATCHES(
      sample.bytes("jpg;png"), DataError,
      MessageMatches(ContainsSubstring("d-000000.tar/a/b: expected a file with the suffix jpg;png, got ppm, cls")));
  CHECK_THROWS_MATCHES(sample.npy("json"), DataError, MessageMatches(ContainsSubstring("a/b.json")));
  CHECK_THROWS_MATCHES(sample.image("json"), DataError, MessageMatches(ContainsSubstring("a/b.json")));
  CHECK_THROWS_MATCHES(walk.next().value().number_in("cls"), DataError,
                       MessageMatches(ContainsSubstring("c.cls: expected a whole number")));
  CHECK_FALSE(walk.next());
  CHECK_FALSE(walk.next());
}

TEST_CASE_METHOD(WebDatasetTest, "WebDataset: damage is an error, or is left out with a notice") {
  const auto urls = archives(20, 10);
  const std::string whole = test::read_file(urls[0]);
  test::write_file(urls[0], whole.substr(0, 4 * 2048 + 700));  // in the fifth sample
  fs::remove(urls[0] + ".index");
  const auto load = [&](bool skip) {
    const WebDataset dataset(urls, decode, {.skip_damaged = skip});
    StreamSampler sampler({.shuffle = false, .num_replicas = 1});
    Loader loader(dataset, sampler, {.batch_size = 4, .workers = 2});
    const auto seen = targets(loader);
    return std::pair(seen, dataset.skipped());
  };
  CHECK_THROWS_MATCHES(load(false), DataError,
                       MessageMatches(ContainsSubstring(urls[0]) && ContainsSubstring("truncated")));
  for (const bool has_index : {false, true}) {  // an index changes nothing
    if (has_index) test::write_file(urls[0] + ".index", "ddprun-shard-index 1 99 0\n");
    const auto [seen, skipped] = load(true);
    CHECK_THAT(seen, ElementsAre(0, 1, 2, 3, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19));
    CHECK(skipped == 1);
  }
  // A sample that cannot be decoded.
  ShardWriter writer(path("bad"));
  for (const int64_t value : {3, -1, 4}) writer.add("v" + std::to_string(value + 10), {{"cls", std::to_string(value)}});
  writer.close();
  const WebDataset strict(writer.archives()[0].string(), decode),
      lenient(writer.archives()[0].string(), decode, {.skip_damaged = true});
  StreamSampler sampler({.num_replicas = 1});
  Loader of_lenient(lenient, sampler, {.batch_size = 3});
  CHECK_THAT(targets(of_lenient), ElementsAre(3, 4));
  CHECK(lenient.skipped() == 1);
  Loader of_strict(strict, sampler, {.batch_size = 3});
  CHECK_THROWS_AS(targets(of_strict), DataError);
}

TEST_CASE_METHOD(WebDatasetTest, "WebDataset: large batches have memory of their own, however long they are kept") {
  const auto urls = archives(12, 12);
  const auto large = [](const ShardSample& sample, SampleRandom&) {
    const int64_t number = sample.number_in("cls");
    return Batch{.data = at::full({1 << 20}, number, at::kFloat), .target = at::scalar_tensor(number, at::kLong)};
  };
  const WebDataset dataset(urls, large);
  StreamSampler sampler({.num_replicas = 1});
  Loader loader(dataset, sampler, {.batch_size = 2, .workers = 2});
  for (int pass = 0; pass < 3; ++pass) {
    std::vector<Batch> kept;
    for (auto& batch : loader) {
      if (batch.target[0].item<int64_t>() % 4 == 0) kept.push_back(batch);
      batch.data.add_(0.25);
    }
    for (const Batch& batch : kept) {
      CHECK(batch.data.min().item<float>() == static_cast<float>(batch.target[0].item<int64_t>()) + 0.25F);
      CHECK(batch.data[1].max().item<float>() == static_cast<float>(batch.target[1].item<int64_t>()) + 0.25F);
    }
    CHECK(kept.size() == 3);
    at::Tensor grown = kept[0].data;
    grown.resize_({3, 1 << 20});
    CHECK(grown[1][5].item<float>() == kept[0].data[1][5].item<float>());
  }
}

TEST_CASE_METHOD(WebDatasetTest, "WebDataset: samples with and without a target in one batch are refused") {
  const auto urls = archives(4, 4);
  const auto some = [](const ShardSample& sample, SampleRandom&) {
    const int64_t number = sample.number_in("cls");
    return Batch{.data = at::zeros({1}), .target = number == 2 ? at::Tensor() : at::scalar_tensor(number, at::kLong)};
  };
  const WebDataset dataset(urls, some);
  StreamSampler sampler({.num_replicas = 1});
  Loader loader(dataset, sampler, {.batch_size = 4});
  CHECK_THROWS_MATCHES(targets(loader), std::invalid_argument,
                       MessageMatches(ContainsSubstring("3 of its 4 samples have a target")));
}

TEST_CASE_METHOD(WebDatasetTest, "WebDataset: an archive that is cut where a file would begin is an error") {
  const auto urls = archives(10, 10);
  fs::remove(urls[0] + ".index");
  test::write_file(urls[0], test::read_file(urls[0]).substr(0, 4 * 2048));
  const auto load = [&](bool skip) {
    const WebDataset dataset(urls, decode, {.skip_damaged = skip});
    StreamSampler sampler({.shuffle = false, .num_replicas = 1});
    Loader loader(dataset, sampler, {.batch_size = 2});
    const auto seen = targets(loader);
    CHECK(dataset.part_size(0) == 4);
    return std::pair(seen, dataset.skipped());
  };
  CHECK_THROWS_MATCHES(load(false), DataError,
                       MessageMatches(ContainsSubstring("blocks of zeros that end an archive")));
  CHECK(load(true) == std::pair(std::vector<int64_t>{0, 1, 2, 3}, int64_t{1}));
}

TEST_CASE_METHOD(WebDatasetTest, "WebDataset: a file that is too large is damage, whether its content is read or not") {
  ShardWriter writer(path("large"));
  for (const int size : {10, 20, 2000, 30}) {
    writer.add("s" + std::to_string(size), {{"cls", std::to_string(size)}, {"bin", std::string(size, 'x')}});
  }
  writer.close();
  const WebDataset dataset({writer.archives()[0].string()}, decode, {.skip_damaged = true, .most_file_bytes = 1000});
  CHECK(dataset.part_size(0) == 2);
  StreamSampler sampler({.num_replicas = 1});
  Loader loader(dataset, sampler, {.batch_size = 4});
  CHECK_THAT(targets(loader), ElementsAre(10, 20));
  CHECK(dataset.skipped() == 1);
}

TEST_CASE_METHOD(WebDatasetTest,
                 "WebDataset: an index of another archive, a damaged one and one of a compressed archive are refused") {
  const auto urls = archives(10, 10);
  CHECK(index_shard(urls[0]) == 10);
  const std::string index = test::read_file(urls[0] + ".index");
  const WebDataset dataset(urls, decode);
  CHECK(dataset.part_size(0) == 10);
  for (const std::string& wrong : {std::string(), index.substr(0, index.size() - 3), index + "9\n",
                                   "ddprun-shard-index 1 99 0\n" + std::string()}) {
    test::write_file(urls[0] + ".index", wrong);
    CHECK_THROWS_AS(dataset.part_size(0), DataError);
  }
  fs::remove(urls[0] + ".index");
  CHECK(dataset.part_size(0) == 10);
  test::write_file(urls[0], test::gzip(test::read_file(urls[0])));
  CHECK(dataset.part_size(0) == 10);
  CHECK_THROWS_MATCHES(index_shard(urls[0]), DataError, MessageMatches(ContainsSubstring("is compressed")));
}

TEST_CASE_METHOD(WebDatasetTest, "WebDataset: addresses that say nothing, and no addresses, are refused") {
  using Catch::Matchers::Message;
  const auto has_message = [](const std::string& address, const std::string& message) {
    INFO(address);
    CHECK_THROWS_MATCHES(WebDataset(address, decode), std::invalid_argument, Message(message));
  };
  const std::string expected = "', expected a file, file:PATH or pipe:COMMAND";
  has_message("", "WebDataset: address 1 of 1 is '" + expected);
  has_message("a.tar::", "WebDataset: address 2 of 2 is '" + expected);
  has_message("{a.tar,,b.tar}", "WebDataset: address 2 of 3 is '" + expected);
  for (const std::string address : {"file:", "pipe:", "pipe: ", "  "}) {
    has_message(address, "WebDataset: address 1 of 1 is '" + address + expected);
  }
  CHECK_THROWS_MATCHES(WebDataset(std::vector<std::string>{}, decode), std::invalid_argument,
                       Message("WebDataset: expected at least one archive, got none"));
  CHECK_THROWS_MATCHES(WebDataset("a.tar", nullptr), std::invalid_argument,
                       MessageMatches(ContainsSubstring("expected a function that decodes")));
  CHECK_THROWS_MATCHES(WebDataset("a-{1..1000000000}.tar", decode), std::invalid_argument,
                       MessageMatches(ContainsSubstring("more than 10,000,000 addresses")));
  CHECK_THROWS_MATCHES(WebDataset("a-{00..12.tar", decode), std::invalid_argument,
                       MessageMatches(ContainsSubstring("the braces do not close")));
}

TEST_CASE_METHOD(WebDatasetTest, "WebDataset: what is no regular file is refused") {
  REQUIRE(::mkfifo(path("fifo").c_str(), 0600) == 0);
  const std::string folder = path("").string(), fifo = path("fifo").string();
  const std::vector<std::pair<std::string, std::string>> kCases = {
      {folder, "expected a file, got a folder"},
      {"file:" + folder, "expected a file, got a folder"},
      {fifo, "expected a regular file, got a pipe"},
      {"/dev/zero", "expected a regular file, got a pipe"},
      {"{}", "cannot be opened: No such file"},
      {path("absent").string(), "cannot be opened: No such file"},
      {"https://host/a.tar", "such as 'pipe:curl"},
      {"pipe:exit 3", "the command ended with status 3"},
      {"pipe:true", "expected a tar archive, got nothing"}};
  for (const auto& [address, message] : kCases) {
    INFO(address);
    const auto read = [&, address = address] { WebDataset(address, decode).open(0).next(); };
    CHECK_THROWS_MATCHES(read(), DataError, MessageMatches(ContainsSubstring(message)));
  }
  // Only a local file has an index.
  for (const std::string& address : {folder, fifo, "pipe:cat " + archives(1, 1)[0], "file:" + archives(1, 1)[0]}) {
    CHECK_THROWS_AS(index_shard(address), DataError);
  }
}

TEST_CASE_METHOD(WebDatasetTest, "WebDataset: what is no damage has advice") {
  const auto message_of = [&](const std::string& content) {
    test::write_file(path("x.tar"), content);
    const WebDataset dataset(path("x.tar").string(), decode);
    try {
      dataset.open(0).next();
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(message_of(std::string("\xfd\x37zXZ\0", 6) + "..."), ContainsSubstring("such as 'pipe:xz -dc FILE'"));
  CHECK_THAT(message_of("BZh91AY"), ContainsSubstring("such as 'pipe:bzip2 -dc FILE'"));
  CHECK_THAT(message_of("\x28\xb5\x2f\xfd" + std::string(1000, 'x')), ContainsSubstring("'pipe:zstd -dc FILE'"));
  std::string sparse(512, '\0');
  sparse.replace(0, 5, "a.txt");
  sparse[156] = 'S';
  sparse.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (const char byte : sparse) sum += static_cast<unsigned char>(byte);
  std::array<char, 8> digits{};
  std::snprintf(digits.data(), digits.size(), "%06o", sum);
  sparse.replace(148, 7, digits.data(), 7);
  CHECK_THAT(message_of(sparse), ContainsSubstring("is sparse, which is not supported: make the archive without"));
}

}  // namespace
}  // namespace ddp
