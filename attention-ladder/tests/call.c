// Queries the mission in each dtype, with and without log-sum-exps, unsupported calls, and sequences; prints the code and message of the
// mission in f16.
#include "attention_ladder.h"
#include <stdio.h>
#include <string.h>

static AttentionLadderTensor tensor(void) {
    AttentionLadderTensor t = {NULL, NULL, 8 * 512 * 64, 512 * 64, 64};
    return t;
}

// Whether `call` with log-sum-exps gets the same answer from a query, and a variant if it passes, as without.
static int takes_lse(AttentionLadderCall call, int32_t expected) {
    float lse = 0;
    call.lse = &lse;
    if (attention_ladder_query(&call, 0) != expected) return 0;
    return (attention_ladder_variant(&call, 0) != NULL) == (expected == ATTENTION_LADDER_OK);
}

// The first thing that is wrong with calls on sequences, or 0; `expected`: the code of a call that is right.
static int check_varlen(int32_t expected) {
    AttentionLadderVarlenCall call;
    memset(&call, 0, sizeof call);
    call.q = call.k = call.v = call.o = tensor();
    call.dtype = ATTENTION_LADDER_BF16;
    call.mask = ATTENTION_LADDER_CAUSAL;
    call.batch = 3;
    call.heads_q = call.heads_kv = 8;
    call.max_seqlen_q = call.max_seqlen_k = 300;
    call.total_q = call.total_k = 512;
    call.head_dim = 64;
    call.window_left = call.window_right = -1;
    int32_t starts = 0;
    call.cu_seqlens_q = call.cu_seqlens_k = &starts;
    if (attention_ladder_varlen_query(&call, 0) != expected) return 30;
    if (attention_ladder_varlen_query(NULL, 0) != ATTENTION_LADDER_INVALID) return 31;
    if (attention_ladder_varlen(NULL, 0, NULL) != ATTENTION_LADDER_INVALID) return 32;
    if (attention_ladder_varlen(&call, 0, NULL) != ATTENTION_LADDER_INVALID) return 33;
    if (strcmp(attention_ladder_last_error(), "the address of q is null") != 0) return 34;
    call.block_table = &starts;
    if (attention_ladder_varlen_query(&call, 0) != ATTENTION_LADDER_INVALID) return 35;
    call.block_table = NULL;
    call.dtype = ATTENTION_LADDER_E4M3;
    if (attention_ladder_varlen_query(&call, 0) != ATTENTION_LADDER_UNSUPPORTED) return 36;
    if (strstr(attention_ladder_last_error(), "E4M3 is not supported") == NULL) return 37;
    call.dtype = ATTENTION_LADDER_BF16;
    call.kv_dtype = ATTENTION_LADDER_E4M3;
    if (attention_ladder_varlen_query(&call, 0) != expected) return 38;
    call.kv_dtype = ATTENTION_LADDER_BF16;
    if (attention_ladder_varlen_query(&call, 0) != ATTENTION_LADDER_UNSUPPORTED) return 39;
    return strstr(attention_ladder_last_error(), "kv_dtype 2 is not supported") == NULL ? 40 : 0;
}

int main(void) {
    AttentionLadderCall call;
    memset(&call, 0, sizeof call);
    call.q = call.k = call.v = call.o = tensor();
    call.dtype = ATTENTION_LADDER_F16;
    call.mask = ATTENTION_LADDER_CAUSAL;
    call.batch = 1;
    call.heads_q = call.heads_kv = 8;
    call.seq_q = call.seq_kv = 512;
    call.head_dim = 96;
    if (strlen(attention_ladder_version()) == 0 || strlen(attention_ladder_last_error()) != 0) return 10;
    if (attention_ladder_query(&call, 0) != ATTENTION_LADDER_UNSUPPORTED) return 11;
    if (strstr(attention_ladder_last_error(), "head_dim = 96 is not supported") == NULL) return 12;
    if (attention_ladder_query(NULL, 0) != ATTENTION_LADDER_INVALID) return 13;
    if (attention_ladder_launch(NULL, 0, NULL, 0, NULL) != ATTENTION_LADDER_INVALID) return 14;
    call.head_dim = 64;
    if (attention_ladder_launch(&call, 0, NULL, 0, NULL) != ATTENTION_LADDER_INVALID) return 22;
    if (strcmp(attention_ladder_last_error(), "the address of q is null") != 0) return 23;
    if (attention_ladder_query(&call, -1) != ATTENTION_LADDER_INVALID) return 24;
    if (attention_ladder_workspace(&call, 0, NULL) != ATTENTION_LADDER_INVALID) return 25;
    size_t bytes = 7;
    int32_t code = attention_ladder_workspace(&call, 0, &bytes);
    const char *variant = attention_ladder_variant(&call, 0);
    if (code == ATTENTION_LADDER_OK ? variant == NULL || bytes != 0 : variant != NULL) return 15;
    for (int32_t dtype = ATTENTION_LADDER_F16; dtype <= ATTENTION_LADDER_BF16; dtype++) {
        call.dtype = dtype;
        if (attention_ladder_query(&call, 0) != code || !takes_lse(call, code)) return 16;
    }
    call.dtype = ATTENTION_LADDER_BF16 + 1;
    if (!takes_lse(call, ATTENTION_LADDER_UNSUPPORTED)) return 17;
    if (strstr(attention_ladder_last_error(), "dtype 3 is not supported") == NULL) return 18;
    call.dtype = ATTENTION_LADDER_BF16;
    call.lse = (float *)66;
    if (attention_ladder_query(&call, 0) != ATTENTION_LADDER_INVALID) return 19;
    call.lse = NULL;
    call.dtype = ATTENTION_LADDER_F16;
    call.flags = ATTENTION_LADDER_BATCH_INVARIANT << 1;
    if (attention_ladder_query(&call, 0) != ATTENTION_LADDER_UNSUPPORTED) return 20;
    call.flags = ATTENTION_LADDER_BATCH_INVARIANT;
    if (attention_ladder_query(&call, 0) != code) return 21;
    call.flags = 0;
    code = attention_ladder_workspace(&call, 0, &bytes);
    const int wrong = check_varlen(code);
    if (wrong) return wrong;
    code = attention_ladder_workspace(&call, 0, &bytes); // the last error is its own
    printf("%d %s\n", (int)code, code == ATTENTION_LADDER_OK ? variant : attention_ladder_last_error());
    return 0;
}
