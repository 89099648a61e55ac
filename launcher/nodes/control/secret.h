// A secret that the launchers of a job share, and how each proves to the other that it knows it without saying it: who
// is challenged by a number that was never used before answers with its HMAC-SHA-256 (of libsodium).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace launcher::control {

class Secret {
 public:
  // In bytes.
  static constexpr std::size_t kShortest = 16;
  static constexpr std::size_t kLongest = 4096;

  // Reads the file, but for a newline at its end. Throws LaunchError when that is impossible or the secret is short,
  // and when this ddprun was built without libsodium.
  static Secret read(const std::string& path);

  // What one end says of a connection. All of it is proved: `speaker` keeps one end's proof from being played back as
  // the other's.
  struct Claim {
    std::string_view speaker{};
    std::string_view own_challenge{};
    std::string_view other_challenge{};
    std::string_view session{};
    std::uint64_t received = 0;
  };
  // 64 hexadecimal digits.
  std::string proof(const Claim& claim) const;
  // Takes as long for any wrong one.
  bool is_valid_proof(std::string_view proof, const Claim& claim) const;

 private:
  explicit Secret(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string bytes_;
};

// This ddprun was built with libsodium.
bool has_secrets();

// What to say of a secret's file that others than its owner can read or change; "" when there is nothing.
std::string exposure_of(const std::string& path);

// 64 hexadecimal digits that nobody can foresee, with and without libsodium. Throws LaunchError where the kernel has no
// random numbers.
std::string new_challenge();

inline constexpr std::string_view kNode = "node";
inline constexpr std::string_view kCoordinator = "coordinator";

}  // namespace launcher::control
