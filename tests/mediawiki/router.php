<?php
/**
 * What stands in front of the test wiki: the gateway that turns callers away, and its faults.
 *
 * The router script of PHP's built-in server. A caller without a contact in its User-Agent gets 403.
 * Then the plan of the wiki's folder (plan.txt) says what goes wrong, a line for each request in
 * turn; the last line is followed by nothing but truth:
 *
 *     ok               the truth
 *     429 37           too many requests, Retry-After in seconds
 *     429 date 37      the same as a date, 37 seconds after the answer's own
 *     503              an HTML page; 503 20 has a Retry-After
 *     500              nothing at all
 *     html             an HTML page with status 200
 *     cut              half of the true answer, its whole length announced
 *     half             half of the true answer, its end announced
 *     lag 7            the truth of a server that lags by 7 seconds
 *     slow 0.5         the truth, half a second later
 *
 * Each request leaves a line in log.jsonl: when it came and was answered (nanoseconds of one clock),
 * the plan's word for it, its User-Agent, its action and how many titles or ids it asked for.
 *
 * Copyright (C) 2026 hgld contributors
 *
 * This program is free software; you can redistribute it and/or modify it under the terms of the
 * GNU General Public License as published by the Free Software Foundation; either version 2 of the
 * License, or (at your option) any later version. It is distributed in the hope that it will be
 * useful, but WITHOUT ANY WARRANTY; without even the implied warranty of MERCHANTABILITY or
 * FITNESS FOR A PARTICULAR PURPOSE. See the GNU General Public License for more details.
 *
 * @license GPL-2.0-or-later
 */

const HGLD_TURNED_AWAY = 'Please set a user-agent and respect our robot policy '
	. 'https://w.wiki/4wJS. See also T400119.';
const HGLD_TOO_MANY = "You are making too many requests to the API.\nPlease follow the best "
	. "practices at <https://www.mediawiki.org/wiki/Wikimedia_APIs/Rate_limits>.\nIf you are unsure "
	. "how to get the access you need, contact <bot-traffic@wikimedia.org>.\n\nrequest-id: test";
const HGLD_PAGE = "<!DOCTYPE html><html><title>Wikimedia Error</title></html>";

/** The next word of the plan; each is given out once, whichever worker asks. */
function hgldNextWord( string $folder ): string {
	if ( !is_file( "$folder/plan.txt" ) ) {
		return 'ok';
	}
	$file = fopen( "$folder/served", 'c+' );
	flock( $file, LOCK_EX );
	$number = (int)stream_get_contents( $file );
	rewind( $file );
	fwrite( $file, (string)( $number + 1 ) );
	fclose( $file );
	return file( "$folder/plan.txt", FILE_IGNORE_NEW_LINES )[$number] ?? 'ok';
}

function hgldLog( string $folder, int $came, string $word ): void {
	$asked = $_POST['titles'] ?? $_POST['ids'] ?? $_GET['titles'] ?? $_GET['ids'] ?? '';
	$line = [
		'came' => $came,
		'answered' => hrtime( true ),
		'word' => $word,
		'status' => http_response_code(),
		'agent' => $_SERVER['HTTP_USER_AGENT'] ?? '',
		'action' => $_GET['action'] ?? $_POST['action'] ?? '',
		'prop' => $_POST['prop'] ?? $_POST['props'] ?? '',
		'asked' => $asked === '' ? 0 : substr_count( $asked, '|' ) + 1,
	];
	file_put_contents( "$folder/log.jsonl", json_encode( $line ) . "\n", FILE_APPEND | LOCK_EX );
}

/** Refuse or spoil the answer, if the plan says so; whether that was all. */
function hgldSpoil( string $word ): bool {
	[ $kind, $first, $second ] = explode( ' ', $word ) + [ 'ok', '', '' ];
	switch ( $kind ) {
		case '429':
			http_response_code( 429 );
			header( 'content-type: text/plain' );
			header( 'x-wmf-ratelimit-class: unauthed-bot' );
			header( 'retry-after: ' . ( $first === 'date'
				? gmdate( 'D, d M Y H:i:s', time() + (int)$second ) . ' GMT' : $first ) );
			echo HGLD_TOO_MANY;
			return true;
		case '503':
			http_response_code( 503 );
			if ( $first !== '' ) {
				header( "retry-after: $first" );
			}
			echo HGLD_PAGE;
			return true;
		case '500':
			http_response_code( 500 );
			return true;
		case 'html':
			echo HGLD_PAGE;
			return true;
		case 'cut':
		case 'half':
			ob_start( static function ( string $body ) use ( $kind ): string {
				$left = substr( $body, 0, intdiv( strlen( $body ), 2 ) );
				header( 'Content-Length: ' . strlen( $kind === 'cut' ? $body : $left ) );
				return $left;
			} );
			return false;
		case 'slow':
			usleep( (int)( 1e6 * (float)$first ) );
			return false;
		case 'lag':
			$GLOBALS['hgldLag'] = (float)$first;
			return false;
	}
	return false;
}

$hgldCame = hrtime( true );
$hgldFolder = getenv( 'HGLD_WIKI' );
$hgldWord = 'turned away';
$hgldProper = '~^[\w.-]+/\S+ \(.*(https?://\S+|\S+@\S+).*\)~';
register_shutdown_function( static function () use ( $hgldFolder, $hgldCame, &$hgldWord ) {
	hgldLog( $hgldFolder, $hgldCame, $hgldWord );
} );
if ( !preg_match( $hgldProper, $_SERVER['HTTP_USER_AGENT'] ?? '' ) ) {
	http_response_code( 403 );
	echo HGLD_TURNED_AWAY;
	return;
}
$hgldWord = hgldNextWord( $hgldFolder );
if ( !hgldSpoil( $hgldWord ) ) {
	chdir( $_SERVER['DOCUMENT_ROOT'] );
	require $_SERVER['DOCUMENT_ROOT'] . '/api.php';
}
