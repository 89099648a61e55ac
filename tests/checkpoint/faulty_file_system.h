// The real file system, which counts its operations and does something unpleasant at a chosen one.
#pragma once

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include <ddprun/detail/checkpoint/storage/file_system.h>

namespace ddp::test {

class FaultyFileSystem : public storage::FileSystem {
 public:
  using Path = std::filesystem::path;

  /// Called before each operation with its number (from 0) and a text such as "sync model.safetensors".
  using Fault = std::function<void(int number, const std::string& operation)>;

  explicit FaultyFileSystem(Fault fault = [](int, const std::string&) {}) : fault_(std::move(fault)) {}

  /// Ends this process with SIGKILL at operation `at`; writes are torn: half of the bytes arrive.
  static Fault kill_at(int at) {
    return [at](int number, const std::string&) {
      if (number == at) ::raise(SIGKILL);
    };
  }

  /// Operation `at` and all after it fail with `error`.
  static Fault fail_from(int at, int error) {
    return [at, error](int number, const std::string& operation) {
      if (number >= at) throw std::system_error(error, std::generic_category(), "injected: " + operation);
    };
  }

  /// Only operation `at` fails.
  static Fault fail_at(int at, int error) {
    return [at, error](int number, const std::string& operation) {
      if (number == at) throw std::system_error(error, std::generic_category(), "injected: " + operation);
    };
  }

  const std::vector<std::string>& operations() const { return operations_; }
  void can_exchange(bool yes) { can_exchange_ = yes; }
  void can_lock(bool yes) { can_lock_ = yes; }

  storage::FileDescriptor create(const Path& path) override {
    step("create", path);
    return FileSystem::create(path);
  }
  size_t write(const storage::FileDescriptor& file, const void* data, size_t size, const Path& path) override {
    step("write", path);
    const auto half = FileSystem::write(file, data, std::max<size_t>(1, size / 2), path);
    if (half == size) return half;
    step("write the rest of", path);
    return half + FileSystem::write(file, static_cast<const char*>(data) + half, size - half, path);
  }
  void sync(const storage::FileDescriptor& file, const Path& path) override {
    step("sync", path);
    FileSystem::sync(file, path);
  }
  void close(storage::FileDescriptor file, const Path& path) override {
    step("close", path);
    FileSystem::close(std::move(file), path);
  }
  storage::FileDescriptor open(const Path& path) override {
    step("open", path);
    return FileSystem::open(path);
  }
  void read(const storage::FileDescriptor& file, void* data, size_t size, uint64_t position,
            const Path& path) override {
    step("read", path);
    FileSystem::read(file, data, size, position, path);
  }
  void make_folder(const Path& path) override {
    step("make", path);
    FileSystem::make_folder(path);
  }
  void sync_folder(const Path& path) override {
    step("sync folder", path);
    FileSystem::sync_folder(path);
  }
  void rename(const Path& from, const Path& to) override {
    step("rename to", to);
    FileSystem::rename(from, to);
  }
  bool exchange(const Path& left, const Path& right) override {
    step("exchange", right);
    return can_exchange_ && FileSystem::exchange(left, right);
  }
  storage::FileDescriptor open_lock(const Path& path) override {
    step("open the lock", path);
    return FileSystem::open_lock(path);
  }
  storage::LockResult lock(const storage::FileDescriptor& file, const Path& path) override {
    step("lock", path);
    return can_lock_ ? FileSystem::lock(file, path) : storage::LockResult::kUnsupported;
  }
  void overwrite(const storage::FileDescriptor& file, const std::string& text, const Path& path) override {
    step("sign", path);
    FileSystem::overwrite(file, text, path);
  }
  void remove(const Path& path) override {
    // Piece by piece, as the real one goes, so that a process can die in the middle.
    if (std::filesystem::is_directory(path)) {
      for (const auto& name : FileSystem::entries(path)) remove(path / name);
    }
    step("remove", path);
    FileSystem::remove(path);
  }

 private:
  void step(const char* verb, const Path& path) {
    operations_.push_back(std::string(verb) + " " + path.filename().string());
    fault_(static_cast<int>(operations_.size()) - 1, operations_.back());
  }

  Fault fault_;
  std::vector<std::string> operations_;
  bool can_exchange_ = true;
  bool can_lock_ = true;
};

}  // namespace ddp::test
